import re
from html.parser import HTMLParser

import pytest

from crosstack import __version__
from crosstack.mapping.mapping import Status
from crosstack.report.certificate_words import certificate_sentence
from crosstack.report.html import answer_html

VOID = {"meta", "path", "rect", "br"}


class Reader(HTMLParser):
    """Collects text, and checks that what is opened is closed."""

    def __init__(self, page):
        super().__init__()
        self.open, self.text, self.tags = [], [], set()
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.mark.parametrize("whole", [True, False])
def test_the_page_is_well_formed_and_says_what_the_answer_rests_on(small_answer, whole):
    page = answer_html(small_answer, whole_page=whole)
    text = " ".join(Reader(page).text)
    assert certificate_sentence(small_answer) in text
    assert small_answer.rules.name in text
    assert f"crosstack {__version__}" in text
    assert page.startswith("<!DOCTYPE html>") is whole


def test_the_page_is_self_contained(small_answer):
    page = answer_html(small_answer)
    assert not Reader(page).tags & {"script", "link", "img", "iframe"}
    assert "url(" not in page
    assert "src=" not in page


def test_the_style_of_a_fragment_touches_nothing_outside(small_answer):
    page = answer_html(small_answer, whole_page=False)
    style = page.partition("<style>")[2].partition("</style>")[0]
    for rule in re.sub(r"@media [^{]*\{", "", style).split("}"):
        for selector in rule.partition("{")[0].split(","):
            assert selector.strip() == "" or selector.strip().startswith(".xs-answer")


def test_everything_is_escaped(make_answer):
    answer = make_answer(['<b>&"', "</style><script>", "plain"], [(0, 1), (1, 2)], [0, 0, 1])
    page = answer_html(answer)
    reader = Reader(page)
    assert not reader.tags & {"b", "script"}
    assert '<b>&"' in " ".join(reader.text)


def test_one_kernel_makes_a_page(lonely_answer):
    assert "only" in " ".join(Reader(answer_html(lonely_answer)).text)


def test_a_large_answer_makes_a_page(large_answer):
    assert "kernel_1999" in " ".join(Reader(answer_html(large_answer)).text)


def test_an_answer_short_of_proof_says_its_gap(make_answer):
    answer = make_answer(["a", "b"], [(0, 1)], [0, 1], status=Status.LIMIT)
    assert "gap 10 %" in " ".join(Reader(answer_html(answer)).text)
