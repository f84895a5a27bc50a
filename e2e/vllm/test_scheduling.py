"""The arithmetic of the scheduling leg, without engines: `python3 -m unittest discover -s e2e/vllm`."""

import unittest

import scheduling


def load(p50, cached, requests=(100, 92), succeeded=192):
    return {
        "requests": 192, "succeeded": succeeded, "prompt_tokens": 1000, "cached_tokens": cached, "wall_s": 9.5,
        "ttft_ms": {"p50": p50, "p90": 2 * p50},
        "per_endpoint": {f"default/e{n}": {"requests": count} for n, count in enumerate(requests)},
    }


def passes(default, least, chance):
    rows = dict(zip(scheduling.PROFILES, (default, least, chance), strict=True))
    return {profile: [scheduling.figures_of(each) for each in loads] for profile, loads in rows.items()}


GOOD = passes([load(50, 900), load(54, 880)], [load(90, 500), load(90, 520)], [load(100, 480), load(96, 500)])


class Verdicts(unittest.TestCase):
    def held(self, rows):
        return [holds for _, holds, _ in scheduling.verdicts(rows)]

    def test_a_better_default_passes(self):
        self.assertEqual(self.held(GOOD), [True] * 4)
        self.assertAlmostEqual(scheduling.noise(GOOD), 4 / 52)

    def test_each_check_can_fail(self):
        for at, default in enumerate((
            [load(50, 900, succeeded=191), load(50, 900)],
            [load(50, 510), load(50, 500)],
            [load(120, 900), load(120, 900)],
            [load(50, 900, requests=(192, 0)), load(50, 900, requests=(192, 0))],
        )):
            rows = {**GOOD, **{"kvasir-cost": [scheduling.figures_of(each) for each in default]}}
            self.assertEqual(self.held(rows), [number != at for number in range(4)], at)

    def test_no_cached_tokens_told_counts_as_none(self):
        self.assertEqual(scheduling.figures_of(load(1, None))["cached"], 0.0)

    def test_the_table_has_a_row_for_each_pass(self):
        text = scheduling.table(GOOD)
        self.assertEqual(sum(line.startswith("| `") for line in text.splitlines()), 6)
        self.assertIn("| `kvasir-cost` | 2 | 54.0 | 108.0 | 88.0% | 100 / 92 | 9.5 |", text)

    def test_documents_name_one_scorer(self):
        self.assertIn("- {name: random, weight: 1}", scheduling.document("random"))


if __name__ == "__main__":
    unittest.main()
