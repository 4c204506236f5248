"""The declaration of one key of a settings file, and its names in INI, in TOML and in the environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from tocsin.operate.settings.setting_values import ValueKind

OWN_SECTION: Final = "TOCSIN"
"""The section of keys that the reference does not have."""

# These names say nothing without their section.
_NAMED_WITH_SECTION: Final = frozenset({"enable", "disconnect", "ttl", "check_interval"})


@dataclass(frozen=True, slots=True)
class SettingKey:
    """One key of a file; each kind of file has a subclass with the prefix of its environment variables."""

    environment_prefix: ClassVar[str] = "TOCSIN_"

    section: str
    name: str
    kind: ValueKind
    about: str = ""
    """For the comment above the key; empty for keys that new files do not have."""
    setting: str | None = None
    """The field of the settings, with dots for fields of fields; none if nothing depends on it."""
    switch: bool = False
    """`off` makes the setting None, `on` leaves it to the key that gives its value."""
    secret: bool = False
    shown: str | None = None
    """The default in a new file, if it differs from that of the setting."""
    also: str = ""
    """Another environment variable: weaker than our own, stronger than the file."""

    @property
    def variable(self) -> str:
        """The environment variable that overrides the file."""
        name = f"{self.section}_{self.name}" if self.name in _NAMED_WITH_SECTION else self.name
        return self.environment_prefix + name.upper()

    @property
    def ini_name(self) -> str:
        return f"[{self.section}] {self.name}"

    @property
    def toml_path(self) -> tuple[str, ...]:
        """Tables, then the name.

        Sections of the reference are tables in small letters. Our own keys are in the table of the part that they set
        (`[direct]`, `[apns.endpoints.apns_prod]`), or at the top if they are about the whole router.
        """
        if self.section != OWN_SECTION:
            return self.section.lower(), self.name
        if self.setting is not None and "." in self.setting:
            return tuple(self.setting.split("."))
        return (self.name,)

    @property
    def toml_name(self) -> str:
        return ".".join(self.toml_path)
