"""The table of forms: each module of `keystone.runs.exchange.forms` lists its own."""

from keystone.indexing.errors import UserError
from keystone.indexing.plugins import OpenTable
from keystone.runs.exchange.forms import answers, biogen, nuggets, own, ragdoll, requests, scores, trec
from keystone.runs.exchange.types import Form

__all__ = ["FORMS", "Form", "get_form"]

_MODULES = (trec, nuggets, own, answers, biogen, ragdoll, requests, scores)

_OWN: dict[str, Form] = {form.name: form for module in _MODULES for form in module.FORMS}
FORMS = OpenTable("keystone.forms", Form, _OWN)
"""The forms by name, from the general to the special ones, and those of other packages.

A record of JSON has the last form that fits it.
"""


def get_form(name: str, option: str) -> Form:
    """Get the form with a name. `UserError` that names the option for an unknown one."""
    if name not in FORMS:
        raise UserError(f"{option} {name}: unknown; expected one of {', '.join(FORMS)}")
    return FORMS[name]
