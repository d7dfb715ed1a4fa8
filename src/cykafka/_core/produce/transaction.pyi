from typing import final

@final
class Sending: ...

@final
class Transactions: ...
