"""Logs with the courses of published ones: a pass of 64 nodes, one that counts epochs, one with an odd last third.

Measurements of rounds 2.0 to 3.1 as the logs have them; other lines are as their logger writes them.
"""

from typing import Any, NamedTuple

from tests.compliance.logs import Record

STARTED = 1_683_425_559_155  # ms


class Course(NamedTuple):
    """One run: batch, samples on each accelerator, schedule, and its evaluations; `throughput` if it was logged."""

    name: str
    batch: int
    local: int
    schedule: tuple[float, float, float]  # steps, warm-up, start
    untimed_ms: int
    at_ms: tuple[int, ...]
    samples: tuple[int, ...]
    accuracies: tuple[float, ...]
    trained: int
    throughput: float | None


_N64 = (
    175_256, 350_666, 525_489, 700_718, 875_669, 1_050_383, 1_225_554, 1_400_620, 1_575_805, 1_750_973, 1_925_770,
    2_100_993, 2_276_442, 2_451_173, 2_625_492, 2_800_592,
)  # fmt: skip
COURSES = (
    Course(
        "3.0, 64 nodes, packed", 3072, 3, (1024.0, 10_000.0, -9_500.0), 152_797,
        (1_878, 3_102, 4_317, 5_529, 6_747, 7_960, 9_182, 10_398, 11_609, 12_821, 14_033, 15_245, 16_457, 17_670,
         18_882, 20_093),
        _N64,
        (0.37343981862068176, 0.38818639516830444, 0.40435507893562317, 0.5043702721595764, 0.666577935218811,
         0.7017595767974854, 0.708153247833252, 0.7104790806770325, 0.7142783999443054, 0.7158616185188293,
         0.7169755101203918, 0.7183158993721008, 0.7188039422035217, 0.7195161581039429, 0.7199504971504211,
         0.7206183671951294),
        2_800_592, 139_390.17811913672,
    ),
    Course(
        "2.0, one node, epoch_num 1", 448, 56, (6700, 0, 0), 68_072,
        (67_269, 130_412, 190_794, 252_108, 316_602, 380_163, 440_342, 502_447, 569_503, 635_324, 698_747, 758_378,
         812_137, 871_357, 936_639, 1_000_937),
        (1,) * 16,
        (0.3730054759652994, 0.4013146987051502, 0.45580814272537273, 0.5898233446588905, 0.6941866031501396,
         0.7071304307214497, 0.7105280978901771, 0.7126437586839002, 0.7144068093453361, 0.7159947225238479,
         0.7167629922822749, 0.7177624435181618, 0.7179889546627436, 0.7191728840473105, 0.7197309888262285,
         0.720237719943489),
        2_400_384, None,
    ),
    Course(
        "3.1, one node, intervals of 129 to 139 s", 352, 44, (6700.0, 0, 0), 9_563,
        (138_714, 276_856, 416_118, 554_058, 683_376, 813_602, 944_529, 1_076_316, 1_205_987, 1_337_598, 1_469_767,
         1_604_358, 1_743_119, 1_879_550, 2_011_675),
        (150_304, 300_256, 450_208, 600_160, 750_112, 900_064, 1_050_016, 1_200_320, 1_350_272, 1_500_224, 1_650_176,
         1_800_128, 1_950_080, 2_100_032, 2_250_336),
        (0.37541770935058594, 0.4098590612411499, 0.48223990201950073, 0.6108328104019165, 0.6987962126731873,
         0.7075670957565308, 0.710904061794281, 0.7130594253540039, 0.7143858075141907, 0.7160157561302185,
         0.7170549035072327, 0.7182037830352783, 0.7189090251922607, 0.7195278406143188, 0.7202260494232178),
        2_250_336, 1_118.6363340674784,
    ),
    Course(
        "2.0, a late start, then intervals that its excess pays for", 6912, 2, (700, 0, -700), 1_020_000,
        (4_800, 5_120, 5_440, 5_760, 6_081, 6_400, 6_722, 7_572, 8_423, 9_272, 10_122, 10_974, 11_822, 12_672),
        tuple(228_096 * number for number in range(1, 15)),
        (0.3501643, 0.3608474, 0.3807637, 0.4202551, 0.5004954, 0.6004494, 0.6806515, 0.7007887, 0.7100938, 0.7130283,
         0.7168357, 0.7186327, 0.7199622, 0.7211345),
        3_193_344, None,
    ),
)  # fmt: skip


def log(course: Course) -> list[Record]:
    """The log of a run with this course, for ruleset 3.0.0."""
    steps, warm_up, start = course.schedule
    settings = {
        "submission_benchmark": "bert", "submission_org": "org", "submission_division": "closed",
        "submission_status": "onprem", "submission_platform": "1xtoy", "seed": 18_733,
        "global_batch_size": course.batch, "d_batch_size": course.local, "gradient_accumulation_steps": 1,
        "max_predictions_per_seq": 76, "opt_learning_rate_training_steps": steps, "num_warmup_steps": warm_up,
        "opt_base_learning_rate": 2e-3, "opt_lamb_epsilon": 1e-6, "opt_epsilon": 1e-6, "opt_lamb_beta_1": 0.9,
        "opt_lamb_beta_2": 0.999, "opt_lamb_weight_decay_rate": 0.01, "opt_learning_rate_warmup_steps": warm_up,
        "opt_lamb_learning_rate_decay_poly_power": 1.0, "start_warmup_step": start,
    }  # fmt: skip
    end, last = course.at_ms[-1], course.samples[-1]
    records = [
        _record("cache_clear", True, -course.untimed_ms - 9_000), _record("init_start", None, -course.untimed_ms),
        *(_record(key, value, -course.untimed_ms + 3_000) for key, value in settings.items()),
        _record("init_stop", None, -7), _record("run_start", None, 0), _record("epoch_start", None, 26, epoch_num=0),
        _record("block_start", None, 26, first_epoch_num=1, epoch_count=1), _record("data_file", "part_1.hdf5", 27),
        *(_record("eval_accuracy", accuracy, at, epoch_num=samples)
          for at, samples, accuracy in zip(course.at_ms, course.samples, course.accuracies, strict=True)),
        _record("block_stop", None, end, first_epoch_num=1), _record("epoch_stop", None, end, epoch_num=last),
        _record("train_samples", course.trained, end), _record("eval_samples", 10_000, end + 1),
        _record("run_stop", None, end + 1, status="success"),
    ]  # fmt: skip
    if course.throughput is not None:
        stats = {"throughput": course.throughput, "epoch_num": last}
        records.append(_record("tracked_stats", stats, end + 1, step=[2, round(last / course.batch)]))
    return records


def _record(key: str, value: Any, at_ms: int, **metadata: Any) -> Record:
    place = {"file": "/workspace/bert/run_pretraining.py", "lineno": 1, **metadata}
    event = {"namespace": "", "time_ms": STARTED + at_ms, "event_type": "POINT_IN_TIME"}
    return {**event, "key": key, "value": value, "metadata": place}
