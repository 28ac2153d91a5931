"""Arrays and devices, threads, processes and progress: what the numerical code runs on."""
