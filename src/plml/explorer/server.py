"""``plml.explore``: the page in a notebook, in a file, or live in the browser."""

import logging
from dataclasses import dataclass
from html import escape
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from plml.backend.progress import work
from plml.explorer.page_data import PageData, page_data
from plml.explorer.subject import subject_of
from plml.install import as_pandas, install
from plml.io.files import check_destination, write

#: Where only this machine can reach the page.
LOCALHOST = "127.0.0.1"


@dataclass(frozen=True)
class Page:
    """A page of the explorer; in a notebook it shows itself.

    Attributes
    ----------
    data : what it shows
    height : its height in a notebook, in pixels

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> import plml
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> model = plml.SML(n_neighbors=5).fit(X[::2], y[::2])
    >>> page = plml.explore(model, html="page.html")
    >>> page.save("copy.html")
    >>> page.html()[:15]
    '<!DOCTYPE html>'
    """

    data: PageData
    height: int = 900

    def __repr__(self) -> str:
        return f"<Page: {self.data.facts['chosen']}>"

    def html(self) -> str:
        """The page as one file, which needs neither a server nor a network."""
        from plml.explorer.page import standalone

        return standalone(self.data)

    def save(self, path: str | Path) -> None:
        """Write the page as one file.

        Parameters
        ----------
        path : the file to write
        """
        write(Path(path), self.html())

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{escape(self.html())}" width="100%" height="{self.height}" '
            'style="border:none" sandbox="allow-scripts allow-forms allow-downloads"></iframe>'
        )


def explore(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    html: str | Path | None = None,
    port: int = 0,
    address: str = LOCALHOST,
    open_browser: bool = True,
    random_state: int = 0,
    verbose: int = 0,
) -> Page:
    """Show training cases and new cases on a map, with the explanation of every one.

    In a notebook the page is shown below the cell. With ``html`` it is written to a file. Otherwise
    it is served to a browser until Ctrl-C, and values of the new cases can be changed in it.

    Parameters
    ----------
    model : a fitted estimator of this library that has neighbours, a ``Pipeline`` that ends in one,
        or a model of ``plml fit``
    X : new cases, as ``predict`` takes them; None shows the training cases alone
    y : their classes, if known, so that errors are marked; None or NaN where one is not known. A
        model of ``plml fit`` finds them in the column that it was fitted to
    html : the file to write
    port : the port to serve at; 0 takes one that is free
    address : the address to serve at; by default no other machine can reach the page
    open_browser : whether the page is opened in a browser
    random_state : seeds the choice of the cases and the map
    verbose : above zero shows the progress

    Returns
    -------
    page : shows itself in a notebook; ``page.save`` writes it to a file

    See Also
    --------
    explain : The explanations as text, tables and pictures.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> import plml
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> model = plml.SML(n_neighbors=5).fit(X[::2], y[::2])
    >>> page = plml.explore(model, X[1::2], y[1::2], html="page.html")
    """
    check_bokeh()
    X = as_pandas(X)
    if html is not None:
        check_destination(Path(html), "html")
    with work(verbose, passing=True):
        labels = labels_of(model, X) if y is None else y
        page = Page(page_data(subject_of(model), X, labels, random_state=random_state))
        if html is not None:
            page.save(html)
    if html is None and not _in_notebook():
        serve(page.data, port=port, address=address, open_browser=open_browser)
    return page


def check_bokeh() -> None:
    """Refuse to start without the library that draws the page."""
    try:
        import bokeh  # noqa: F401
    except ImportError:
        raise ValueError(f"the explorer needs bokeh: {install('explore')}") from None


def labels_of(model: Any, table: Any, name: str = "the table") -> Any:
    """The classes of new cases, where the table has the column that the model was fitted to.

    None where a class is missing.

    Parameters
    ----------
    model : a model of ``plml fit``; others know no such column
    table : new rows
    name : of the table, for messages
    """
    if getattr(model, "target", None) not in getattr(table, "columns", ()):
        return None
    known = table[model.target].notna().to_numpy()
    labels = np.full(len(table), None, dtype=object)
    if known.any():
        labels[known] = model.labels(table[known], name)
        model.tell_unknown(labels[known].astype(model.classifier.classes_.dtype), name)
    return labels


def serve(
    data: PageData, *, port: int = 0, address: str = LOCALHOST, open_browser: bool = True
) -> None:
    """Serve a page until Ctrl-C.

    Parameters
    ----------
    data : what it shows
    port, address, open_browser : as in ``explore``
    """
    server = LiveServer(data, port, address)
    try:
        print(f"The explorer is at {server.url} (Ctrl-C ends it).", flush=True)
        server.run(open_browser)
    except KeyboardInterrupt:
        print("\nThe explorer has ended.", flush=True)
    finally:
        server.close()


class LiveServer:
    """A Bokeh server of one page. It serves this page and Bokeh's own scripts, and no other file.

    It answers to pages of this server alone, by whatever name they call it. At an address that only
    this machine can reach, other names are refused: a page from elsewhere whose name was made to
    point here would look like its own.

    Parameters
    ----------
    data : what it shows
    port, address : to listen at; port 0 takes one that is free
    """

    def __init__(self, data: PageData, port: int = 0, address: str = LOCALHOST) -> None:
        from bokeh.application import Application
        from bokeh.application.handlers.function import FunctionHandler
        from bokeh.server.server import BaseServer
        from bokeh.server.tornado import BokehTornado
        from bokeh.server.util import bind_sockets
        from tornado.httpserver import HTTPServer
        from tornado.ioloop import IOLoop
        from tornado.routing import Rule, RuleRouter

        from plml.explorer.page import fill

        if not 0 <= port < 2**16:
            raise ValueError(f"port must be between 0 and {2**16 - 1}, got {port}")
        for name in ("bokeh", "tornado.access"):
            logging.getLogger(name).setLevel(logging.ERROR)
        try:
            sockets, self.port = bind_sockets(address, port)
        except OSError as error:
            raise ValueError(f"cannot listen at {address}, port {port}: {error.strerror}") from None
        self.host = _host(address)
        self.url = f"http://{self.host}:{self.port}/"
        hosts = {self.host, "localhost"} if _is_loopback(address) else None

        def make(document: Any) -> None:
            fill(document, data, live=True)

        application = Application(FunctionHandler(make))
        tornado = BokehTornado({"/": application}, extra_websocket_origins=["*"])  # see _matcher
        http = HTTPServer(RuleRouter([Rule(_matcher(hosts), tornado)]))
        http.add_sockets(sockets)
        self._server = BaseServer(IOLoop.current(), tornado, http)

    def run(self, open_browser: bool = False) -> None:
        """Serve until somebody stops the loop.

        Parameters
        ----------
        open_browser : whether the page is opened
        """
        import webbrowser

        self._server.start()
        if open_browser:
            self._server.io_loop.add_callback(webbrowser.open, self.url)
        self._server.io_loop.start()

    def stop(self) -> None:
        """End ``run``, from any thread."""
        self._server.io_loop.add_callback(self._server.io_loop.stop)

    def close(self) -> None:
        """Stop listening."""
        self._server.stop(wait=False)


def _matcher(hosts: set[str] | None) -> Any:
    """Lets requests through that no page from elsewhere has sent.

    Parameters
    ----------
    hosts : names that the server may be called by; None for any
    """
    from tornado.routing import Matcher

    class OwnPages(Matcher):
        def match(self, request: Any) -> dict[str, Any] | None:
            origin = request.headers.get("Origin")
            own = origin is None or urlsplit(origin).netloc.lower() == request.host.lower()
            return {} if own and (hosts is None or request.host_name in hosts) else None

    return OwnPages()


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _host(address: str) -> str:
    """As a browser of this machine names it."""
    if address in ("", "0.0.0.0", "::"):
        return "localhost"
    return f"[{address}]" if ":" in address else address


def _in_notebook() -> bool:
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    shell = get_ipython()
    return shell is not None and hasattr(shell, "kernel")
