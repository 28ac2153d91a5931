"""A page in the browser that shows a model's cases and explains each of them; needs Bokeh."""

from plml.explorer.server import Page, explore

__all__ = ["Page", "explore"]
