"""The verdict on leases, with figures made up. Run by the tests of the `meerkat` crate."""

import unittest

from . import leases


def phases(*rates):
    return [{"per_second": rate, "p99_ms": 1.0, "operations": rate, "member_cpu_s": 1.0, "renewals_per_second": 5000} for rate in rates]


def puts(idle, renewed):
    latency = {"p50": 1.0, "p99": 2.0}
    return {"before": phases(100), "idle": phases(*idle), "renewed": phases(*renewed), "renewals": {"latency_ms": latency}}


class Verdict(unittest.TestCase):
    def test_renewals_may_cost_no_more_than_the_spread(self):
        lines, missed = leases.renewed_verdict(puts((100, 90, 110), (99, 95, 91)))
        self.assertEqual(missed, [])
        self.assertIn("its median **0.99**", "\n".join(lines))

    def test_renewals_that_cost_more_than_the_spread_are_told(self):
        self.assertEqual(len(leases.renewed_verdict(puts((100, 90, 110), (80, 79, 81)))[1]), 1)

    def test_fewer_renewals_than_etcd_miss_the_floor(self):
        def one(rate):
            return {case.name: {figure.label: rate for figure in case.figures} for case in leases.CASES}

        self.assertEqual(leases.table([(one(100), one(100))], leases.CASES)[1], [])
        missed = leases.table([(one(100), one(90))], leases.CASES)[1]
        floors = [case.name for case in leases.CASES if leases.PER_SECOND in case.figures]
        self.assertEqual(len(missed), len(floors))
        self.assertIn("keep-alive, 64 streams: per second is 0.90 of etcd's, and should be at least 1", missed)


if __name__ == "__main__":
    unittest.main()
