"""What a tenant uses, has stored, and what that costs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from widerow.codec.answer import JSON, encode_records
from widerow.model.times import format_time
from widerow.server.call import Answer, Call, json_answer
from widerow.server.schemas import columns_of
from widerow.usage.ledger import Use


def usage(call: Call) -> Answer:
    """Step by step, with the sum and what is stored now by level. As a table: the steps alone."""
    tenant, step = call.tenant(), call.query.text("step") or "hour"
    ledger = call.service.ledger
    statement = ledger.statement(tenant, call.span("-1d"), step)
    steps = [_form(use) for use in statement.steps]
    if call.media_type != JSON:
        return Answer(200, encode_records(steps, call.media_type, columns_of("Usage", "usage")), call.media_type)
    total = _form(statement.total)
    del total["time"]
    return json_answer(
        {
            "tenant": tenant.name,
            "step": step,
            "stored": {**statement.stored, "total": sum(statement.stored.values())},
            "devices": call.service.catalog.devices.count(tenant.name),
            "series": call.service.catalog.series.count(tenant),
            "limits": {name: value for name, value in asdict(tenant.limits).items() if value},
            "prices": asdict(ledger.prices),
            "total": total,
            "usage": steps,
        }
    )


def _form(use: Use) -> dict[str, Any]:
    form = asdict(use)
    cost = form.pop("cost")
    form["question_seconds"] = round(use.question_seconds, 6)
    form["cost"] = {name: round(value, 9) for name, value in cost.items()}
    return {"time": format_time(form.pop("time_us")), **form}
