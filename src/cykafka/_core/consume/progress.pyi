from typing import final

@final
class Progress: ...
