import asyncio

from equipoise.kit.language.limiter import Limiter


def test_grows_by_one_a_success_until_the_first_failure_then_by_one_a_round():
    limiter = Limiter(most=20, start=4)
    for _ in range(4):
        limiter.succeeded()
    assert limiter.limit == 8
    limiter.pressed(began=9.0, now=10.0)
    assert limiter.limit == 4
    for _ in range(4):
        limiter.succeeded()
    assert 4.8 < limiter.limit < 5.1
    for _ in range(1000):
        limiter.succeeded()
    assert limiter.limit == 20


def test_failures_of_one_round_halve_once_and_never_below_one():
    limiter = Limiter(most=32, start=32)
    for _ in range(32):
        limiter.pressed(began=4.0, now=5.0)
    assert limiter.limit == 16
    for second in range(10, 100):
        limiter.pressed(began=second, now=second + 0.5)
    assert limiter.limit == 1


def test_lets_in_no_more_than_the_limit_and_everyone_in_the_end():
    async def main():
        limiter = Limiter(most=5, start=2)
        live, most, done = 0, 0, 0

        async def call():
            nonlocal live, most, done
            async with limiter:
                live += 1
                most = max(most, live)
                await asyncio.sleep(0.001)
                live -= 1
            limiter.succeeded()
            done += 1

        calls = [asyncio.ensure_future(call()) for _ in range(60)]
        await asyncio.sleep(0)
        calls[30].cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert (most, done, limiter.active) == (5, 59, 0)

    asyncio.run(main())


def test_paces_attempts_and_honours_a_request_to_wait():
    async def main():
        clock = asyncio.get_running_loop().time
        limiter = Limiter(most=5, per_minute=1200)  # one in 50 ms
        began = clock()
        await asyncio.gather(*(limiter.pace() for _ in range(5)))
        assert 0.19 < clock() - began < 2
        limiter.pressed(clock(), clock(), wait=0.2)
        began = clock()
        await limiter.pace()
        assert 0.19 < clock() - began < 2

    asyncio.run(main())
