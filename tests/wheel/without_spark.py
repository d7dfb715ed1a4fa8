"""The wheel without Spark: the import is harmless, and the metadata name the extra's packages."""

import importlib.metadata
import importlib.util

import pyspark_cykafka


def main() -> None:
    assert importlib.util.find_spec("pyspark") is None, "this environment is not empty"
    # Spark looks for data sources in all modules with such a name.
    assert not hasattr(pyspark_cykafka, "DefaultSource")
    import cykafka.spark

    said = ""
    try:
        cykafka.spark.register(None)  # type: ignore[arg-type]
    except ImportError as error:
        said = str(error)
    assert "pip install 'cykafka[spark]'" in said, said

    wanted = {
        requirement.replace(" ", "").replace("'", '"')
        for requirement in importlib.metadata.requires("cykafka") or []
    }
    for requirement in ("pyspark>=4.0", "pyarrow>=18"):
        assert f'{requirement};extra=="spark"' in wanted, wanted
    assert all(";extra==" in requirement for requirement in wanted), wanted


if __name__ == "__main__":
    main()
