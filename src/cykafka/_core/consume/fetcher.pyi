from typing import final

@final
class Fetcher: ...
