"""The machine, in the 33 fields of an MLPerf system description; any of them may be empty."""

from typing import Literal

from pydantic import Field

from bertbench.common.section import Section

Status = Literal["Available on-premise", "Available cloud", "Research, Development, or Internal (RDI)", "Preview"]


class Hardware(Section):
    """MLPerf's system description (mlcommons/policies, submission_rules.adoc); counts are numbers here."""

    submitter: str = "bertbench"
    division: Literal["closed", "open"]
    status: Status
    system_name: str
    number_of_nodes: int = Field(ge=1)
    host_processors_per_node: str = ""
    host_processor_model_name: str = ""
    host_processor_core_count: str = ""
    host_processor_vcpu_count: str = ""
    host_processor_frequency: str = ""
    host_processor_caches: str = ""
    host_processor_interconnect: str = ""
    host_memory_capacity: str = ""
    host_storage_type: str = ""
    host_storage_capacity: str = ""
    host_networking: str = ""
    host_networking_topology: str = ""
    host_memory_configuration: str = ""
    accelerators_per_node: int = Field(default=0, ge=0)
    accelerator_model_name: str = ""
    accelerator_host_interconnect: str = ""
    accelerator_frequency: str = ""
    accelerator_on_chip_memories: str = Field(default="", alias="accelerator_on-chip_memories")
    accelerator_memory_configuration: str = ""
    accelerator_memory_capacity: str = ""
    accelerator_interconnect: str = ""
    accelerator_interconnect_topology: str = ""
    cooling: str = ""
    hw_notes: str = ""
    framework: str = ""
    other_software_stack: str = ""
    operating_system: str = ""
    sw_notes: str = ""

    def description(self) -> dict[str, str]:
        """Return the 33 fields under MLPerf's names, all as text: the official checker joins them as strings."""
        return {name: str(value) for name, value in self.model_dump(by_alias=True).items()}
