"""The verdict on watches, with figures made up. Run by the tests of the `meerkat` crate."""

import unittest

from . import watches


def round_of(value, without=()):
    """Figures of all cases, except some."""
    return {
        case.name: {figure.label: value(figure) for figure in case.figures}
        for case in watches.CASES
        if case.name not in without
    }


def etcd(_figure):
    return 100


def ours(factor):
    """Just at the floor, but for the factor, above 1 for better."""

    def value(figure):
        if figure.at_least is not None:
            return etcd(figure) * figure.at_least * factor
        return etcd(figure) * (figure.at_most if figure.at_most is not None else 50) / factor

    return value


FLOORS = sum(figure.floor() != "" for case in watches.CASES for figure in case.figures)


class Verdict(unittest.TestCase):
    def test_figures_at_their_floors_reach_them(self):
        rows, missed = watches.table([(round_of(etcd), round_of(ours(1.001)))] * 3, watches.CASES)
        self.assertEqual(missed, [])
        figures = sum(len(case.figures) for case in watches.CASES)
        self.assertEqual(len(rows), 2 + figures)

    def test_every_floor_that_is_missed_is_told(self):
        _, missed = watches.table([(round_of(etcd), round_of(ours(0.9)))], watches.CASES)
        self.assertEqual(len(missed), FLOORS)
        self.assertIn("catch-up of 200,000 events: events per second is 9.00 of etcd's, and should be at least 10", missed)

    def test_one_bad_pair_of_three_does_not_decide(self):
        pairs = [(round_of(etcd), round_of(ours(factor))) for factor in (1.5, 0.1, 1.5)]
        self.assertEqual(watches.table(pairs, watches.CASES)[1], [])

    def test_a_figure_of_etcds_that_is_not_above_zero_proves_nothing(self):
        _, missed = watches.table([(round_of(lambda _: -1), round_of(ours(1.5)))], watches.CASES)
        self.assertEqual(len(missed), FLOORS)

    def test_a_case_of_few_pairs_is_judged_by_those(self):
        slow = [case.name for case in watches.CASES if case.pairs_max == 3]
        full = (round_of(etcd), round_of(ours(1.5)))
        short = (round_of(etcd, slow), round_of(ours(1.5), slow))
        self.assertEqual(watches.table([full] * 3 + [short] * 4, watches.CASES)[1], [])

    def test_unrelated_watchers_may_cost_no_more_than_the_spread(self):
        self.assertEqual(watches.unrelated_verdict([(100, 99), (90, 95), (110, 91)])[1], [])
        self.assertEqual(len(watches.unrelated_verdict([(100, 80), (90, 79), (110, 81)])[1]), 1)


if __name__ == "__main__":
    unittest.main()
