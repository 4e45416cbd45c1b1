"""A page as its elements."""

from html.parser import HTMLParser


class Tree(HTMLParser):
    """Whether all tags are closed, and what stands in which."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.texts = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script") and data.strip():
            self.texts.append((self.open[-1], data.strip()))

    def of(self, tag, kind=None):
        return [a for name, a in self.elements if name == tag and kind in (None, *(a.get("class") or "").split())]

    def said(self, tag=None):
        return [text for name, text in self.texts if tag in (None, name)]
