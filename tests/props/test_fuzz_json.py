"""A short run of the fuzzers; the long ones are started by hand."""

from fuzz.arrow import fuzz_arrow
from fuzz.documents import fuzz_documents
from fuzz.json import fuzz_json


def test_the_json_decoder_agrees_with_the_oracle_on_hostile_bodies() -> None:
    fuzz_json(2_000, seed=20261115)


def test_many_documents_agree_with_the_oracle_one_by_one() -> None:
    fuzz_documents(500, seed=20261115)


def test_the_arrow_decoder_answers_hostile_streams() -> None:
    assert fuzz_arrow(2_000, seed=20261115) > 50
