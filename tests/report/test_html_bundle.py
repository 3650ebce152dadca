from __future__ import annotations

from pathlib import Path

from memguard.report.html import bundle


def test_modules_keep_their_scopes_and_come_after_what_they_import(tmp_path: Path) -> None:
    """Imports become names of earlier modules; equal private names do not meet."""
    (tmp_path / "a.js").write_text(
        'import { twice } from "./b.js";\nimport lib from "./c.js";\nconst x = 1;\ntwice(lib, x);\n'
    )
    (tmp_path / "b.js").write_text("const x = 2;\nexport function twice() {\n  return x;\n}\n")
    (tmp_path / "c.js").write_text("const lib = 3;\nexport default lib;\n")
    text = bundle(tmp_path, "a.js")
    assert text.index("const module_b_js") < text.index("const module_c_js") < text.index("const module_a_js")
    assert "const { twice } = module_b_js;" in text
    assert "const { default: lib } = module_c_js;" in text
    assert "return { default: lib };" in text
    assert "import " not in text
    assert "export " not in text
