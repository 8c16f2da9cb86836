"""The colours of pictures and pages, light and dark, and the style sheet of the SVG."""

from __future__ import annotations

from collections.abc import Iterable

from kubexm_exec.draw.status import LOOKS, Look

FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,'Noto Sans','DejaVu Sans',sans-serif"
MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"

LIGHT = {
    "paper": "#ffffff",
    "module": "#f3f5f9",
    "module-line": "#d3dae5",
    "task": "#ffffff",
    "task-line": "#d9dfe9",
    "box": "#f8fafc",
    "box-line": "#c3ccd9",
    "ink": "#172033",
    "soft": "#556177",
    "edge": "#8391a7",
    "hook": "#7c4dbd",
    "found": "#d97706",
    "chosen": "#1f6feb",
}
DARK = {
    "paper": "#0f131a",
    "module": "#161c26",
    "module-line": "#2c3646",
    "task": "#1c2430",
    "task-line": "#334054",
    "box": "#232d3b",
    "box-line": "#435167",
    "ink": "#e8edf5",
    "soft": "#a6b2c4",
    "edge": "#74829a",
    "hook": "#bd97f0",
    "found": "#f5b14c",
    "chosen": "#6aa9ff",
}

# No custom properties: viewers that are not browsers do not know them. What is in a symbol is styled by its own class
# alone: seen from inside, nothing is round it.
_FIXED = f"""
.kx text{{font-family:{FONT};text-rendering:geometricPrecision}}
.kx .name{{font-size:12.5px;font-weight:600}}
.kx .sub{{font-size:10.5px}}
.kx .title{{font-weight:650}}
.kx .module>.title{{font-size:14px}}
.kx .task>.title,.kx .hooks>.title{{font-size:12.5px}}
.kx .head-name{{font-size:19px;font-weight:700}}
.kx .head-sub{{font-size:12px}}
.kx .way{{fill:none;stroke-width:1.4;marker-end:url(#kx-arrow)}}
.kx .way.barrier{{stroke-width:1.9}}
.kx .way.part{{stroke-dasharray:1.5 3.5;stroke-linecap:round}}
.kx .way.hook{{stroke-dasharray:5 3.5;marker-end:url(#kx-arrow-hook)}}
.kx .way.joint{{marker-end:none}}
.kx .box rect{{stroke-width:1}}
.kx .hooked rect,.kx .hooks>.frame{{stroke-dasharray:4 3}}
.kx .mark{{fill:none;stroke-width:1.5;stroke-linecap:round;stroke-linejoin:round}}
.kx-sign{{fill:none;stroke:#fff;stroke-width:1.7;stroke-linecap:round;stroke-linejoin:round}}
"""


def _colours(palette: dict[str, str], looks: Iterable[Look], *, dark: bool) -> str:
    rules = [
        f".kx .paper{{fill:{palette['paper']}}}",
        f".kx text{{fill:{palette['ink']}}}",
        f".kx .sub,.kx .head-sub{{fill:{palette['soft']}}}",
        f".kx .module>.frame{{fill:{palette['module']};stroke:{palette['module-line']}}}",
        f".kx .task>.frame,.kx .hooks>.frame{{fill:{palette['task']};stroke:{palette['task-line']}}}",
        f".kx .box rect{{fill:{palette['box']};stroke:{palette['box-line']}}}",
        f".kx .way{{stroke:{palette['edge']}}}",
        f".kx .arrow{{fill:{palette['edge']}}}",
        f".kx .dot,.kx .key-dot{{fill:{palette['edge']}}}",
        f".kx .hooked rect,.kx .hooks>.frame,.kx .way.hook{{stroke:{palette['hook']}}}",
        f".kx .arrow-hook{{fill:{palette['hook']}}}",
        f".kx .mark{{stroke:{palette['hook']}}}",
    ]
    for look in looks:
        colour = look.dark if dark else look.light
        rules.append(f".kx-{look.key}{{fill:{colour}}}")
        if look.key != "pending":
            rules.append(f".kx .box.s-{look.key} rect{{stroke:{colour}}}")
            rules.append(f".kx .box.s-{look.key} rect.face{{fill:{_mix(colour, palette['box'], 0.1)}}}")
    if dark:
        rules.append(f".kx-sign{{stroke:{palette['paper']}}}")
    return "\n".join(rules)


def _mix(colour: str, ground: str, share: float) -> str:
    parts = zip(bytes.fromhex(colour[1:]), bytes.fromhex(ground[1:]), strict=True)
    return "#" + bytes(round(a * share + b * (1 - share)) for a, b in parts).hex()


def svg_style(keys: Iterable[str] = LOOKS) -> str:
    """The style sheet of a drawing that shows those outcomes; paper is always light."""
    looks = [LOOKS[key] for key in keys]
    light, dark = _colours(LIGHT, looks, dark=False), _colours(DARK, looks, dark=True)
    return f"{_FIXED}{light}\n@media screen and (prefers-color-scheme:dark){{\n{dark}\n}}\n"


def page_style() -> str:
    """The colours as custom properties, for pages."""

    def block(palette: dict[str, str], *, dark: bool) -> str:
        values = [f"--{name}:{colour}" for name, colour in palette.items()]
        values += [f"--s-{look.key}:{look.dark if dark else look.light}" for look in LOOKS.values()]
        return ";".join(values)

    return (
        f":root{{color-scheme:light dark;--font:{FONT};--mono:{MONO};{block(LIGHT, dark=False)}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{block(DARK, dark=True)}}}}}\n"
        "@media print{:root{color-scheme:light}}\n"
    )
