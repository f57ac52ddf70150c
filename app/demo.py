"""placeholder"""


async def demonstrate() -> int:
    return 0
