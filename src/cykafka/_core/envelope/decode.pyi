from typing import final

@final
class EnvelopeRows: ...
