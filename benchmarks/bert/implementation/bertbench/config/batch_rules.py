"""Rules about the batch: its size, each rank's number of samples, the strata that they are drawn from."""

from bertbench.balance.plan import STRATIFIED, VARYING
from bertbench.config.rules import Rule
from bertbench.config.settings import Settings, nearest_multiples


def can_be_laid_out(settings: Settings) -> bool:
    """Return whether the run's ranks are a multiple of one model's ranks, without which there is no layout."""
    return settings.world_size % (settings.parallel.tensor * settings.parallel.pipeline) == 0


def batch_is_given(settings: Settings) -> bool:
    """Return whether the batch is given once: globally or for a rank."""
    is_global = settings.data.global_batch_size is not None
    is_local = settings.data.local_batch is not None
    return is_global != is_local


def batch_divides(settings: Settings) -> bool:
    """Return whether the batch is given, and all data-parallel ranks get the same number of samples."""
    if not (batch_is_given(settings) and can_be_laid_out(settings)):
        return False
    return settings.global_batch_size % settings.layout.data == 0


def counts_vary(settings: Settings) -> str | None:
    """Return why ranks may get different numbers of samples, with a remedy; None if all get the same number."""
    data = settings.data
    if data.balance not in VARYING or data.equal_counts:
        return None
    remedy = "data.balance to planned and data.equal_counts" if data.balance == "packed" else "data.equal_counts"
    return f"data.balance {data.balance} gives ranks different numbers of samples; set {remedy}"


def _batch_is_given_once(settings: Settings) -> str | None:
    if batch_is_given(settings):
        return None
    return "data: give exactly one of global_batch_size and local_batch"


def _shares_may_differ(settings: Settings) -> bool:
    """Return whether a rank or a part without samples gets one of weight 0, as in fine-tuning."""
    return settings.task == "squad"


def _ranks_get_equal_batches(settings: Settings) -> str | None:
    if _shares_may_differ(settings) or not (batch_is_given(settings) and can_be_laid_out(settings)):
        return None
    if batch_divides(settings):
        return None
    ranks, batch = settings.layout.data, settings.global_batch_size
    choices = nearest_multiples(batch, ranks)
    return f"global batch {batch} is not a multiple of {ranks} ranks; set data.local_batch, or choose {choices}"


def _accumulation_divides_the_local_batch(settings: Settings) -> str | None:
    steps = settings.data.gradient_accumulation_steps
    if _shares_may_differ(settings) or not batch_divides(settings) or settings.local_batch % steps == 0:
        return None
    return (
        f"local batch {settings.local_batch} is not a multiple of data.gradient_accumulation_steps {steps}; choose a "
        "divisor of the local batch"
    )


def _packed_rows_have_no_equal_counts(settings: Settings) -> str | None:
    if not settings.data.equal_counts or settings.data.balance != "packed":
        return None
    return (
        "data.equal_counts is impossible with data.balance packed, whose rows hold different numbers of samples; "
        "choose planned"
    )


def _mean_of_ranks_needs_equal_counts(settings: Settings) -> str | None:
    if settings.loss.normalize != "rank":
        return None
    reason = counts_vary(settings)
    if reason is None:
        return None
    return f"loss.normalize rank takes the mean of the ranks' means, but {reason}, or loss.normalize global"


def _strata_edges_rise(settings: Settings) -> str | None:
    edges = list(settings.data.strata_edges)
    if edges == sorted(set(edges)):
        return None
    return f"data.strata_edges {edges} must increase; sort them and remove duplicates"


def _draws_quotas(settings: Settings) -> bool:
    return settings.data.strata_quotas is not None and settings.data.balance in STRATIFIED


def _every_stratum_has_a_quota(settings: Settings) -> str | None:
    quotas, edges = settings.data.strata_quotas, settings.data.strata_edges
    if quotas is None or not _draws_quotas(settings) or len(quotas) == len(edges):
        return None
    return (
        f"data.strata_quotas has {len(quotas)} quotas for the {len(edges)} strata of data.strata_edges; give one for "
        "each, or null for the dataset's shares"
    )


def _quotas_fill_a_rank_s_batch(settings: Settings) -> str | None:
    quotas = settings.data.strata_quotas
    if quotas is None or not (_draws_quotas(settings) and batch_divides(settings)):
        return None
    total, samples = sum(quotas), settings.local_batch
    if total == samples:
        return None
    return (
        f"data.strata_quotas {list(quotas)} sum to {total}, but a rank has {samples} samples; choose quotas that sum "
        f"to {samples}, or null for the dataset's shares"
    )


def _quotas_cover_all_lengths(settings: Settings) -> str | None:
    longest = settings.model.max_positions
    last_edge = max(settings.data.strata_edges, default=0)
    if not _draws_quotas(settings) or last_edge >= longest:
        return None
    return (
        f"data.strata_quotas would never draw samples of more than {last_edge} tokens, the last of data.strata_edges; "
        f"raise that to model.max_positions {longest}, or set data.strata_quotas to null"
    )


BATCH_RULES: tuple[Rule, ...] = (
    _batch_is_given_once,
    _ranks_get_equal_batches,
    _accumulation_divides_the_local_batch,
    _packed_rows_have_no_equal_counts,
    _mean_of_ranks_needs_equal_counts,
    _strata_edges_rise,
    _every_stratum_has_a_quota,
    _quotas_fill_a_rank_s_batch,
    _quotas_cover_all_lengths,
)
