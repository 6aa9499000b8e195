"""What is in a page."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser


class Page(HTMLParser):
    """What is in a page, checked for tags that are not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: Counter[str] = Counter()
        self.links: list[str] = []
        self.tags: Counter[str] = Counter()
        self.images: list[dict[str, str | None]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags[tag] += 1
        if values.get("id"):
            self.ids[str(values["id"])] += 1
        self.links += [str(values[name]) for name in ("href", "src", "xlink:href") if values.get(name)]
        if tag == "img":
            self.images.append(values)
        if tag not in ("meta", "link", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in ("meta", "link", "img"):
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
