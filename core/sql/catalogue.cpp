#include "core/sql/catalogue.h"

#include <algorithm>
#include <array>

#include "core/model/op.h"

namespace ingero {

namespace {

constexpr auto columns_of_events = std::to_array<SqlColumnInfo>({
    {"id", "INTEGER", "number of the row: later rows have larger ones"},
    {"timestamp", "INTEGER", "when the call began: CLOCK_REALTIME, ns"},
    {"pid", "INTEGER", "process that called"},
    {"tid", "INTEGER", "thread that called"},
    {"source", "TEXT", "where the call was recorded: CUDA (runtime), DRIVER, GRAPH, HOST, IO, TCP, NET, NCCL"},
    {"op", "TEXT", "what was called, such as cudaMalloc"},
    {"duration", "INTEGER", "how long the call took, ns"},
    {"gpu_id", "INTEGER", "the same as device"},
    {"arg0", "INTEGER", "bytes of a copy or allocation, function of a launch, event of a synchronisation"},
    {"arg1", "INTEGER", "address of an allocation, direction of a copy (0 to 4), grid of a launch"},
    {"ret_code", "INTEGER", "what the call returned; 0: success"},
    {"stack_hash", "INTEGER", "stack that it was called on, see stack_traces; 0: none"},
    {"cgroup_id", "INTEGER", "control group of the process, see cgroup_metadata; 0: none"},
    {"node", "TEXT", "machine"},
    {"rank", "INTEGER", "of the process in its job"},
    {"local_rank", "INTEGER", "of the process on its node"},
    {"world_size", "INTEGER", "processes of the job"},
    {"comm", "TEXT", "command of the process"},
    {"start_ns", "INTEGER", "the same as timestamp"},
    {"end_ns", "INTEGER", "when the call returned: CLOCK_REALTIME, ns"},
    {"duration_ns", "INTEGER", "the same as duration"},
    {"on_cpu_ns", "INTEGER", "of the duration, on a CPU: computing, or spinning until the device is done"},
    {"runnable_ns", "INTEGER", "of the duration, able to run and without a CPU"},
    {"blocked_ns", "INTEGER", "of the duration, asleep"},
    {"blocked_on", "TEXT", "what the longest sleep waited for: disk, futex, poll and so on"},
    {"preemptor", "TEXT", "command that had the CPU while this call could run"},
    {"stream", "INTEGER", "handle of the stream; 0: the default stream"},
    {"kernel", "TEXT", "function that a launch launches, demangled"},
    {"bytes", "INTEGER", "bytes copied or allocated"},
    {"direction", "TEXT", "of a copy: H2H, H2D, D2H, D2D or default"},
    {"device", "INTEGER", "ordinal of the device that was current"},
    {"depth", "INTEGER", "traced calls that this one was made inside of; 0: none"},
    {"weight", "INTEGER", "calls that this row stands for: more than 1 where calls were sampled"},
    {"op_num", "INTEGER", "number of op within its source"},
    {"source_num", "INTEGER", "number of source"},
    {"error", "TEXT", "name of what the call returned; null: success"},
    {"syscall", "TEXT", "system call that the longest sleep was in"},
    {"preemptor_pid", "INTEGER", "process that had the CPU while this call could run"},
    {"preemptor_ns", "INTEGER", "of runnable_ns, the part in which it had the CPU"},
    {"preempted_ns", "INTEGER", "of runnable_ns, the part that began with losing the CPU"},
    {"longest_sleep_ns", "INTEGER", "of blocked_ns, the longest part"},
    {"last_wait_ns", "INTEGER", "the last time off a CPU in the call; null: none, or not recorded"},
    {"last_runnable_ns", "INTEGER", "of last_wait_ns, able to run and without a CPU"},
    {"last_blocked_on", "TEXT", "what the sleep in last_wait_ns waited for; null: it lost its CPU, or none"},
    {"tail_ns", "INTEGER", "from the end of last_wait_ns to the return of the call"},
    {"waker", "TEXT", "command that ended the longest sleep"},
    {"waker_pid", "INTEGER", "process that ended the longest sleep"},
    {"waits", "INTEGER", "how often the thread left its CPU during the call"},
    {"cpu", "INTEGER", "CPU that the call returned on"},
    {"arg2", "INTEGER", "block and shared memory of a launch; of a collective what the view collectives shows"},
    {"split_uncertain", "INTEGER", "1: the parts of the duration are an estimate"},
});
static_assert(columns_of_events.size() == static_cast<size_t>(EventColumn::split_uncertain) + 1);
static_assert(columns_of_events[static_cast<size_t>(EventColumn::device)].name == "device");

constexpr auto columns_of_ops = std::to_array<SqlColumnInfo>({
    {"source_id", "TEXT", "as in events.source"},
    {"op_id", "TEXT", "as in events.op"},
    {"name", "TEXT", "the same as op_id"},
    {"description", "TEXT", "class of the operation: launch, copy, sync and so on"},
    {"source_num", "INTEGER", "as in events.source_num"},
    {"op_num", "INTEGER", "as in events.op_num"},
});

constexpr auto columns_of_sources = std::to_array<SqlColumnInfo>({
    {"id", "TEXT", "as in events.source"},
    {"name", "TEXT", "the same as id"},
    {"description", "TEXT", "what is recorded there"},
    {"source_num", "INTEGER", "as in events.source_num"},
});

constexpr auto columns_of_process_names = std::to_array<SqlColumnInfo>({
    {"pid", "INTEGER PRIMARY KEY", "process; of a pid that was reused, the latest one"},
    {"name", "TEXT", "command"},
    {"seen_at", "INTEGER", "when it was first observed: CLOCK_REALTIME, ns"},
    {"node", "TEXT", "machine"},
    {"uid", "INTEGER", "user"},
    {"parent_pid", "INTEGER", "process that created it"},
    {"unit", "TEXT", "systemd unit"},
    {"cgroup_id", "INTEGER", "control group, see cgroup_metadata; 0: none"},
    {"exited_at", "INTEGER", "when it ended: CLOCK_REALTIME, ns; null: it had not ended"},
    {"exit_code", "INTEGER", "as in wait(2); null: it had not ended"},
});

constexpr auto columns_of_processes = std::to_array<SqlColumnInfo>({
    {"pid", "INTEGER", "process"},
    {"start_time_ns", "INTEGER",
     "when it began, CLOCK_REALTIME, ns; of an imported process, when it was first observed"},
    {"comm", "TEXT", "command"},
    {"command", "TEXT", "command line, by default with what may be a secret replaced by ***; null: not kept"},
    {"uid", "INTEGER", "user"},
    {"parent_pid", "INTEGER", "process that created it"},
    {"unit", "TEXT", "systemd unit"},
    {"cgroup", "TEXT", "control group"},
    {"scope", "TEXT", "service, scope or container of the control group"},
    {"container", "TEXT", "id of the container"},
    {"container_runtime", "TEXT", "docker, containerd, cri-o, podman or lxc; null: not known"},
    {"pod_uid", "TEXT", "Kubernetes"},
    {"pod_name", "TEXT", "Kubernetes"},
    {"pod_namespace", "TEXT", "Kubernetes"},
    {"slurm_job", "TEXT", "number"},
    {"slurm_step", "TEXT", "number, batch, extern or interactive"},
    {"ecs_task", "TEXT", "id of the task"},
    {"rank", "INTEGER", "of the process in its job"},
    {"local_rank", "INTEGER", "of the process on its node"},
    {"world_size", "INTEGER", "processes of the job"},
    {"rank_source", "TEXT", "whose environment variables set the rank: torchrun, openmpi, pmi, pmix or slurm"},
    {"cuda_visible_devices", "TEXT", "CUDA_VISIBLE_DEVICES at the start; none: set, but empty"},
    {"nvidia_visible_devices", "TEXT", "NVIDIA_VISIBLE_DEVICES at the start"},
    {"cpus_allowed", "TEXT", "CPUs that it may run on"},
    {"mems_allowed", "TEXT", "NUMA nodes that it may allocate memory on"},
    {"environment", "TEXT", "JSON object of the variables that [processes] environ_allow names"},
    {"first_seen_ns", "INTEGER", "CLOCK_REALTIME, ns"},
    {"exited_ns", "INTEGER", "CLOCK_REALTIME, ns; null: it had not ended"},
    {"exit_code", "INTEGER", "as in wait(2); null: it had not ended"},
    {"node", "TEXT", "machine"},
});

constexpr auto columns_of_stack_traces = std::to_array<SqlColumnInfo>({
    {"hash", "INTEGER PRIMARY KEY", "as in events.stack_hash"},
    {"ips", "TEXT", "JSON list: offsets in the files of the frames, innermost first"},
    {"frames", "TEXT", "JSON list of {i: offset, s: symbol, f: file}, innermost first"},
    {"stack", "TEXT", "the frames' names, outermost first, joined by ;"},
    {"pid", "INTEGER", "process in which it was first observed"},
    {"end", "TEXT", "whole, or why the walk ended early"},
});

constexpr auto columns_of_causal_chains = std::to_array<SqlColumnInfo>({
    {"id", "TEXT", "identifier"},
    {"detected_at", "INTEGER", "CLOCK_REALTIME, ns"},
    {"severity", "TEXT", "LOW, MEDIUM or HIGH"},
    {"summary", "TEXT", "in one line"},
    {"root_cause", "TEXT", "as the tool that found it says"},
    {"explanation", "TEXT", "as the tool that found it says"},
    {"recommendations", "TEXT", "JSON list of texts"},
    {"cuda_op", "TEXT", "operation it is about"},
    {"cuda_p99_us", "INTEGER", "99th percentile, us"},
    {"cuda_p50_us", "INTEGER", "median, us"},
    {"tail_ratio", "REAL", "cuda_p99_us divided by cuda_p50_us"},
    {"timeline", "TEXT", "JSON list of {layer, op, detail, dur_us}"},
    {"node", "TEXT", "machine"},
});

constexpr auto columns_of_system_snapshots = std::to_array<SqlColumnInfo>({
    {"id", "INTEGER", "number of the row"},
    {"timestamp", "INTEGER", "CLOCK_REALTIME, ns"},
    {"cpu_pct", "REAL", "CPU time in use, percent"},
    {"mem_pct", "REAL", "memory in use, percent"},
    {"mem_avail", "INTEGER", "memory available, MiB"},
    {"swap_mb", "INTEGER", "swap in use, MiB"},
    {"load_avg", "REAL", "load average of a minute"},
    {"node", "TEXT", "machine"},
});

constexpr auto columns_of_sessions = std::to_array<SqlColumnInfo>({
    {"id", "INTEGER PRIMARY KEY", "number of the run of ingerod"},
    {"started_at", "INTEGER", "CLOCK_REALTIME, ns"},
    {"stopped_at", "INTEGER", "CLOCK_REALTIME, ns; 0: it runs, or it did not end cleanly"},
    {"gpu_model", "TEXT", "model of the device"},
    {"gpu_driver", "TEXT", "version of the driver"},
    {"cpu_model", "TEXT", "model of the CPU"},
    {"cpu_cores", "INTEGER", "number of CPUs"},
    {"mem_total", "INTEGER", "memory, MiB"},
    {"kernel", "TEXT", "release of the kernel"},
    {"os_release", "TEXT", "distribution"},
    {"cuda_ver", "TEXT", "version of CUDA"},
    {"python_ver", "TEXT", "version of Python"},
    {"ingero_ver", "TEXT", "version of ingerod"},
    {"pid_filter", "TEXT", "processes that the recorder was limited to"},
    {"flags", "TEXT", "options of the recorder"},
    {"node", "TEXT", "machine"},
    {"rank", "INTEGER", "of the process in its job"},
    {"local_rank", "INTEGER", "of the process on its node"},
    {"world_size", "INTEGER", "processes of the job"},
    {"boot_id", "TEXT", "boot of the kernel"},
    {"attach_method", "TEXT", "how probes were attached"},
    {"covered_from", "INTEGER", "from when on calls were recorded: CLOCK_REALTIME, ns; null: never"},
    {"covered_to", "INTEGER", "up to when calls were recorded: CLOCK_REALTIME, ns; null: never"},
});

constexpr auto columns_of_event_aggregates = std::to_array<SqlColumnInfo>({
    {"bucket", "INTEGER", "start of the minute: CLOCK_REALTIME, ns"},
    {"source", "TEXT", "as in events.source"},
    {"op", "TEXT", "as in events.op"},
    {"pid", "INTEGER", "process that called"},
    {"count", "INTEGER", "calls, including those sampled out and those of rollups"},
    {"stored", "INTEGER", "rows of events"},
    {"sum_dur", "INTEGER", "duration of these calls, ns"},
    {"min_dur", "INTEGER", "shortest of these rows, ns; null: there are only rollups"},
    {"max_dur", "INTEGER", "longest of these rows and of the rollups' calls, ns"},
    {"sum_arg0", "INTEGER", "bytes copied or allocated by these calls"},
});

constexpr auto columns_of_cgroup_metadata = std::to_array<SqlColumnInfo>({
    {"cgroup_id", "INTEGER PRIMARY KEY", "as in events.cgroup_id"},
    {"container_id", "TEXT", "container; null: none known"},
    {"cgroup_path", "TEXT", "path in the hierarchy"},
    {"pod_name", "TEXT", "pod; null: none known"},
    {"namespace", "TEXT", "of the pod; null: none known"},
});

constexpr auto columns_of_annotations = std::to_array<SqlColumnInfo>({
    {"id", "INTEGER", "number of the row"},
    {"timestamp", "INTEGER", "CLOCK_REALTIME, ns"},
    {"labels", "TEXT", "JSON object"},
    {"pid", "INTEGER", "process it is about; 0: all"},
    {"start_time", "INTEGER", "of that process, in clock ticks; null: not reported"},
    {"span_start", "INTEGER", "CLOCK_REALTIME, ns; 0: it is about an instant"},
    {"span_end", "INTEGER", "CLOCK_REALTIME, ns; 0: it is about an instant"},
    {"peer_uid", "INTEGER", "user that sent it"},
    {"peer_gid", "INTEGER", "group that sent it; null: not known"},
    {"peer_pid", "INTEGER", "process that sent it; null: not known"},
    {"node", "TEXT", "machine"},
});

constexpr auto columns_of_requests = std::to_array<SqlColumnInfo>({
    {"id", "TEXT", "identifier of the request"},
    {"pid", "INTEGER", "process that served it"},
    {"start_ns", "INTEGER", "CLOCK_REALTIME, ns"},
    {"end_ns", "INTEGER", "CLOCK_REALTIME, ns"},
    {"duration_ns", "INTEGER", "how long it took, ns"},
    {"queue_ns", "INTEGER", "of it, waiting to begin; null: not reported"},
    {"ttft_ns", "INTEGER", "up to the first token; null: not reported"},
    {"model", "TEXT", "model that was requested"},
    {"prompt_tokens", "INTEGER", "tokens of the prompt, as the program reports"},
    {"output_tokens", "INTEGER", "tokens of the answer, as the program reports"},
    {"node", "TEXT", "machine"},
});

constexpr auto columns_of_request_events = std::to_array<SqlColumnInfo>({
    {"request_id", "TEXT", "identifier of the request"},
    {"request_start_ns", "INTEGER", "CLOCK_REALTIME, ns"},
    {"request_end_ns", "INTEGER", "CLOCK_REALTIME, ns"},
    {"event_id", "INTEGER", "as in events.id"},
    {"timestamp", "INTEGER", "when the call was entered: CLOCK_REALTIME, ns"},
    {"source", "TEXT", "as in events.source"},
    {"op", "TEXT", "as in events.op"},
    {"pid", "INTEGER", "process that made the call"},
    {"tid", "INTEGER", "thread that made the call"},
    {"duration_ns", "INTEGER", "of the call"},
    {"overlap_ns", "INTEGER", "of the call's duration, the part inside the request"},
    {"shared_by", "INTEGER", "requests that the call overlaps: it has a row for each, so do not add up over requests"},
    {"on_cpu_ns", "INTEGER", "of the duration, on a CPU"},
    {"runnable_ns", "INTEGER", "of the duration, able to run and without a CPU"},
    {"blocked_ns", "INTEGER", "of the duration, asleep"},
    {"return_code", "INTEGER", "what the call returned; 0: success"},
    {"weight", "INTEGER", "calls that this row stands for"},
    {"node", "TEXT", "machine"},
});

constexpr auto columns_of_incidents = std::to_array<SqlColumnInfo>({
    {"id", "TEXT", "identifier of the incident"},
    {"kind", "TEXT", "what went wrong"},
    {"severity", "TEXT", "low, medium or high"},
    {"verdict", "TEXT", "proven, partial, unexplained or insufficient-evidence"},
    {"summary", "TEXT", "in one line"},
    {"opened_ns", "INTEGER", "CLOCK_REALTIME, ns"},
    {"closed_ns", "INTEGER", "CLOCK_REALTIME, ns; null: it is open"},
    {"lost_ns", "INTEGER", "time lost by it"},
    {"explained", "REAL", "part of it that has a cause, 0 to 1"},
    {"node", "TEXT", "machine"},
    {"pid", "INTEGER", "process that lost the time; 0: none of its own"},
    {"updated_ns", "INTEGER", "as of when the other columns are: CLOCK_REALTIME, ns"},
    {"culprits", "TEXT", "JSON list of {name, pid, ns}, largest first"},
    {"finding", "TEXT", "JSON, as in the answer of explain"},
});

constexpr auto columns_of_spans = std::to_array<SqlColumnInfo>({
    {"id", "TEXT", "identifier that the program set; null: none"},
    {"pid", "INTEGER", "process it is about; 0: all of a scope, or of the machine"},
    {"start_ns", "INTEGER", "CLOCK_REALTIME, ns"},
    {"end_ns", "INTEGER", "CLOCK_REALTIME, ns"},
    {"duration_ns", "INTEGER", "how long it took, ns"},
    {"queue_ns", "INTEGER", "of it, waiting to begin; null: not reported"},
    {"ttft_ns", "INTEGER", "up to the first token; null: not reported"},
    {"model", "TEXT", "model that was requested"},
    {"prompt_tokens", "INTEGER", "tokens of the prompt, as the program reports"},
    {"output_tokens", "INTEGER", "tokens of the answer, as the program reports"},
    {"node", "TEXT", "machine"},
    {"kind", "TEXT", "request, step, phase, label, sample or scope"},
    {"labels", "TEXT", "JSON object of texts"},
    {"numbers", "TEXT", "JSON object of numbers"},
    {"uid", "INTEGER", "user of the process"},
    {"scope", "TEXT", "group of processes it is about; null: the process alone"},
    {"received_ns", "INTEGER", "when ingerod received it: CLOCK_REALTIME, ns"},
    {"number", "INTEGER", "of the row"},
});

constexpr auto columns_of_states = std::to_array<SqlColumnInfo>({
    {"id", "INTEGER", "number of the row in the store, the same for all values of one time and source"},
    {"timestamp", "INTEGER", "CLOCK_REALTIME, ns"},
    {"source", "TEXT", "who measured: host, nvml"},
    {"name", "TEXT", "what was measured"},
    {"value", "REAL", "in the unit that the name says"},
    {"node", "TEXT", "machine"},
});

constexpr auto columns_of_gpu_samples = std::to_array<SqlColumnInfo>({
    {"timestamp", "INTEGER", "CLOCK_REALTIME, ns"},
    {"uuid", "TEXT", "of the GPU"},
    {"gpu_index", "INTEGER", "number of the GPU on its host"},
    {"name", "TEXT", "model"},
    {"pci", "TEXT", "its place on the bus"},
    {"utilization_percent", "REAL", "time in which a kernel ran"},
    {"memory_utilization_percent", "REAL", "time in which memory was read or written"},
    {"memory_used_bytes", "INTEGER", "by all processes"},
    {"memory_total_bytes", "INTEGER", "of the GPU"},
    {"graphics_clock_mhz", "REAL", "now"},
    {"sm_clock_mhz", "REAL", "now"},
    {"memory_clock_mhz", "REAL", "now"},
    {"max_sm_clock_mhz", "REAL", "highest that the GPU can have"},
    {"throttle_reasons", "INTEGER", "bits, as in libnvidia-ml; 0: none"},
    {"temperature_celsius", "REAL", "of the chip"},
    {"power_watts", "REAL", "drawn"},
    {"power_limit_watts", "REAL", "the limit that is enforced"},
    {"ecc_corrected", "INTEGER", "errors of memory since the driver was loaded"},
    {"ecc_uncorrected", "INTEGER", "errors of memory since the driver was loaded"},
    {"remapped_rows_corrected", "INTEGER", "rows of memory replaced for corrected errors"},
    {"remapped_rows_uncorrected", "INTEGER", "rows of memory replaced for uncorrected errors"},
    {"remap_pending", "INTEGER", "1: a row is replaced at the next reset"},
    {"remap_failed", "INTEGER", "1: a row could not be replaced"},
    {"pcie_sent_bytes_per_s", "REAL", "by the GPU"},
    {"pcie_received_bytes_per_s", "REAL", "by the GPU"},
    {"pcie_replays", "INTEGER", "packets sent again"},
    {"pcie_generation", "INTEGER", "of the link now"},
    {"pcie_max_generation", "INTEGER", "highest that the link can have"},
    {"pcie_width", "INTEGER", "lanes now"},
    {"pcie_max_width", "INTEGER", "most lanes that the link can have"},
    {"nvlinks_active", "INTEGER", "links"},
    {"nvlink_crc_errors", "INTEGER", "of all links"},
    {"nvlink_replays", "INTEGER", "of all links"},
    {"nvlink_recoveries", "INTEGER", "of all links"},
    {"numa_node", "INTEGER", "nearest to the GPU"},
    {"processes", "TEXT", "JSON list of {pid, memory_bytes}, of 128 at most"},
    {"processes_running", "INTEGER", "processes on the GPU"},
    {"node", "TEXT", "machine"},
});

constexpr auto columns_of_gpu_events = std::to_array<SqlColumnInfo>({
    {"timestamp", "INTEGER", "CLOCK_REALTIME, ns"},
    {"uuid", "TEXT", "of the GPU"},
    {"xid", "INTEGER", "number of the error, as in the kernel log; null: no error"},
    {"change", "TEXT", "lost: it could not be queried any more; found: it appeared; null: neither"},
    {"node", "TEXT", "machine"},
});

constexpr auto columns_of_port_samples = std::to_array<SqlColumnInfo>({
    {"timestamp", "INTEGER", "CLOCK_REALTIME, ns"},
    {"port", "TEXT", "adapter and number of the port, mlx5_0/1"},
    {"state", "TEXT", "ACTIVE, DOWN and so on"},
    {"physical_state", "TEXT", "LinkUp, Polling and so on"},
    {"link_layer", "TEXT", "InfiniBand or Ethernet"},
    {"rate_bits_per_s", "INTEGER", "of the link"},
    {"symbol_errors", "INTEGER", "of the port"},
    {"link_recoveries", "INTEGER", "times that the link recovered"},
    {"link_downed", "INTEGER", "times that the link failed"},
    {"receive_errors", "INTEGER", "packets with errors"},
    {"transmit_discards", "INTEGER", "packets not sent"},
    {"transmit_wait", "INTEGER", "ticks in which there was data and no credit to send it"},
    {"received_bytes", "INTEGER", "data"},
    {"sent_bytes", "INTEGER", "data"},
    {"out_of_sequence", "INTEGER", "packets that came out of order"},
    {"packet_sequence_errors", "INTEGER", "packets asked for again"},
    {"local_ack_timeouts", "INTEGER", "acknowledgements that did not come"},
    {"node", "TEXT", "machine"},
});

constexpr auto columns_of_clocks = std::to_array<SqlColumnInfo>({
    {"monotonic_ns", "INTEGER", "CLOCK_MONOTONIC"},
    {"boottime_ns", "INTEGER", "CLOCK_BOOTTIME at that time"},
    {"realtime_ns", "INTEGER", "CLOCK_REALTIME at that time"},
    {"session", "INTEGER", "number of the run of ingerod in the store, from 0"},
    {"node", "TEXT", "machine"},
});

constexpr auto columns_of_rollups = std::to_array<SqlColumnInfo>({
    {"minute_ns", "INTEGER", "where the minute begins: CLOCK_REALTIME, ns"},
    {"source", "TEXT", "as in events.source"},
    {"op", "TEXT", "as in events.op"},
    {"pid", "INTEGER", "process that called; 0: several together"},
    {"uid", "INTEGER", "user of the process; null: not known"},
    {"calls", "INTEGER", "calls that began in the minute and have no row in events, by weight"},
    {"errors", "INTEGER", "of these calls, those that failed"},
    {"total_ns", "INTEGER", "how long they took together"},
    {"max_ns", "INTEGER", "how long the longest took"},
    {"p50_ns", "INTEGER", "median, within 0.8 %; null: not known"},
    {"p95_ns", "INTEGER", "95th percentile, within 0.8 %; null: not known"},
    {"p99_ns", "INTEGER", "99th percentile, within 0.8 %; null: not known"},
    {"bytes", "INTEGER", "copied or allocated"},
    {"on_cpu_ns", "INTEGER", "of the time, on a CPU or waiting for the device"},
    {"runnable_ns", "INTEGER", "of the time, waiting for a CPU"},
    {"blocked_ns", "INTEGER", "of the time, asleep"},
    {"lost", "INTEGER", "records lost in the minute"},
    {"sampled_out", "INTEGER", "calls that other records stand for"},
    {"node", "TEXT", "machine"},
});

constexpr auto columns_of_coverage = std::to_array<SqlColumnInfo>({
    {"from_ns", "INTEGER", "CLOCK_REALTIME, ns"},
    {"to_ns", "INTEGER", "CLOCK_REALTIME, ns"},
    {"kind", "TEXT", "gap: calls of that time were not recorded; loss: some records were lost or sampled out"},
    {"reason", "TEXT", "of a gap"},
    {"partial", "INTEGER", "1: a gap of some calls only, the reason says which"},
    {"source", "TEXT", "of a loss"},
    {"op", "TEXT", "of a loss"},
    {"lost", "INTEGER", "records lost"},
    {"uncertain", "INTEGER", "records whose parts of the duration are an estimate"},
    {"sampled_out", "INTEGER", "calls that other rows stand for, by weight"},
});

constexpr auto columns_of_communicators = std::to_array<SqlColumnInfo>({
    {"id", "INTEGER", "as in collectives.communicator_id; unique within its process only"},
    {"pid", "INTEGER", "process that has it"},
    {"communicator", "TEXT", "hash that is the same for all its ranks; null: it was created before tracing began"},
    {"rank", "INTEGER", "of the process or thread in it; null: not known"},
    {"nranks", "INTEGER", "ranks that it has; null: not known"},
    {"handle", "INTEGER", "ncclComm_t"},
    {"origin", "TEXT", "init-rank, init-all, split, or found: created before tracing began"},
    {"parent_id", "INTEGER", "what it was split from; null: nothing, or not known"},
    {"color", "INTEGER", "of the split; null: none"},
    {"key", "INTEGER", "of the split; null: none"},
    {"seen_at", "INTEGER", "when it was created or found: CLOCK_REALTIME, ns"},
    {"node", "TEXT", "machine"},
});

constexpr auto columns_of_collectives = std::to_array<SqlColumnInfo>({
    {"id", "INTEGER", "as in events.id"},
    {"start_ns", "INTEGER", "when it was put on its stream: CLOCK_REALTIME, ns"},
    {"enqueue_ns", "INTEGER", "how long the enqueueing took, which is not how long the collective took, ns"},
    {"pid", "INTEGER", "process that called"},
    {"tid", "INTEGER", "thread that called"},
    {"op", "TEXT", "what was called, such as ncclAllReduce"},
    {"communicator", "TEXT", "as in communicators.communicator"},
    {"communicator_id", "INTEGER", "as in communicators.id"},
    {"rank", "INTEGER", "of the caller; null: not known"},
    {"nranks", "INTEGER", "ranks of the communicator; null: not known"},
    {"seq", "INTEGER", "number within the communicator, from 1, sends and receives counted apart; null: it failed"},
    {"bytes", "INTEGER", "count times the size of the datatype"},
    {"count", "INTEGER", "elements; null: the datatype is not known"},
    {"datatype", "TEXT", "float32, bfloat16 and so on"},
    {"reduction", "TEXT", "sum, prod, max, min, avg, or own (defined by the program); null: none"},
    {"peer", "INTEGER", "other rank of a send or receive"},
    {"root", "INTEGER", "of a broadcast or reduce"},
    {"group_depth", "INTEGER", "number of ncclGroupStart around it, up to 7"},
    {"stream", "INTEGER", "handle of the stream"},
    {"device", "INTEGER", "ordinal of the device that was current"},
    {"error", "TEXT", "name of what the call returned; null: success"},
    {"node", "TEXT", "machine"},
});

constexpr auto columns_of_waits = std::to_array<SqlColumnInfo>({
    {"id", "INTEGER", "as in events.id"},
    {"start_ns", "INTEGER", "when the thread left its CPU: CLOCK_REALTIME, ns"},
    {"end_ns", "INTEGER", "when it ran again: CLOCK_REALTIME, ns"},
    {"duration_ns", "INTEGER", "of the wait, ns"},
    {"pid", "INTEGER", "process"},
    {"tid", "INTEGER", "thread"},
    {"comm", "TEXT", "command of the process"},
    {"depth", "INTEGER", "traced calls that the thread was inside of; 0: between calls"},
    {"runnable_ns", "INTEGER", "of the duration, able to run and without a CPU"},
    {"blocked_ns", "INTEGER", "of the duration, asleep"},
    {"blocked_on", "TEXT", "what it slept for: disk, futex, poll and so on"},
    {"syscall", "TEXT", "system call that it slept in; null: a page fault"},
    {"detail", "TEXT", "the lock, file, other end of a socket or disk request that it waited for"},
    {"waker_pid", "INTEGER", "process that ended the sleep; null: an interrupt, or not known"},
    {"waker_tid", "INTEGER", "its thread"},
    {"waker", "TEXT", "its command"},
    {"preemptor_pid", "INTEGER", "process that had the CPU instead"},
    {"preemptor", "TEXT", "its command"},
    {"preemptor_ns", "INTEGER", "of runnable_ns, the part in which it had the CPU"},
    {"throttled", "INTEGER", "1: it had no CPU because its cgroup had used up its quota"},
    {"from_cpu", "INTEGER", "CPU that it left"},
    {"cpu", "INTEGER", "CPU that it ran on again"},
    {"split_uncertain", "INTEGER", "1: the parts of the duration are an estimate"},
    {"node", "TEXT", "machine"},
});

constexpr auto columns_of_socket_events = std::to_array<SqlColumnInfo>({
    {"id", "INTEGER", "as in events.id"},
    {"timestamp", "INTEGER", "CLOCK_REALTIME, ns"},
    {"pid", "INTEGER", "process that has the socket"},
    {"op", "TEXT", "tcp_retransmit or socket_error"},
    {"peer", "TEXT", "address and port of the other end"},
    {"errno", "TEXT", "ECONNRESET and so on; null: a retransmit"},
    {"stalled_ns", "INTEGER", "of a retransmit, for how long nothing that was sent had arrived; null: not known"},
    {"node", "TEXT", "machine"},
});

constexpr auto columns_of_schema = std::to_array<SqlColumnInfo>({
    {"table_name", "TEXT", "table"},
    {"column_name", "TEXT", "column"},
    {"type", "TEXT", "INTEGER, REAL or TEXT"},
    {"meaning", "TEXT", "what the column holds"},
});

using enum SqlTableInfo::Kind;

constexpr auto tables = std::to_array<SqlTableInfo>({
    {"events", events, "calls, a row each", columns_of_events, ""},
    {"cuda_events", events, "calls of the CUDA runtime and driver", columns_of_events, "1,4,8"},
    {"host_events", events, "events of the host's scheduler and memory", columns_of_events, "3"},
    {"io_events", events, "reads and writes of disks", columns_of_events, "5"},
    {"net_events", events, "sockets: sending, receiving, retransmits, errors", columns_of_events, "6,7"},
    {"nccl_events", events, "collectives", columns_of_events, "9"},
    {"ops", filled, "all operations", columns_of_ops, ", PRIMARY KEY(op_id, source_id)"},
    {"sources", filled, "where calls are recorded", columns_of_sources, ", PRIMARY KEY(id)"},
    {"process_names", filled, "processes, the latest of each pid", columns_of_process_names, ""},
    {"processes", filled, "processes, and what each is part of", columns_of_processes, ""},
    {"stack_traces", filled, "native stacks", columns_of_stack_traces, ""},
    {"causal_chains", history, "findings in traces of other tools", columns_of_causal_chains, ""},
    {"system_snapshots", history, "state of the host", columns_of_system_snapshots, ""},
    {"sessions", filled, "runs of ingerod", columns_of_sessions, ""},
    {"event_aggregates", view, "calls by minute, operation and process", columns_of_event_aggregates,
     "SELECT bucket, source, op, pid, SUM(calls), SUM(stored), SUM(total), MIN(shortest), MAX(longest), SUM(bytes) "
     "FROM ("
     "SELECT timestamp / 60000000000 * 60000000000 AS bucket, source, op, pid, SUM(weight) AS calls, "
     "COUNT(*) AS stored, SUM(duration * weight) AS total, MIN(duration) AS shortest, MAX(duration) AS longest, "
     "SUM(bytes * weight) AS bytes FROM events GROUP BY 1, 2, 3, 4 UNION ALL "
     "SELECT minute_ns / 60000000000 * 60000000000, source, op, pid, calls, 0, total_ns, NULL, max_ns, bytes "
     "FROM rollups) GROUP BY 1, 2, 3, 4"},
    {"cgroup_metadata", filled, "control groups of processes", columns_of_cgroup_metadata, ""},
    {"annotations", history, "labels that programs sent", columns_of_annotations, ""},
    {"requests", history, "requests that programs served", columns_of_requests, ""},
    {"request_events", history, "calls that overlap requests, a row each pair", columns_of_request_events, ""},
    {"incidents", history, "incidents that ingerod found, a row each", columns_of_incidents, ""},
    {"spans", history, "requests, steps, phases and labels that programs reported", columns_of_spans, ""},
    {"states", history, "measurements of hosts and devices, a row each value", columns_of_states, ""},
    {"gpu_samples", history, "measurements of GPUs, a row each time; null: not reported", columns_of_gpu_samples, ""},
    {"gpu_events", history, "errors that GPUs reported, and GPUs that were lost or appeared", columns_of_gpu_events,
     ""},
    {"port_samples", history, "measurements of InfiniBand ports, a row each time; null: not reported",
     columns_of_port_samples, ""},
    {"rollups", history, "sums by minute of calls whose rows were removed", columns_of_rollups, ""},
    {"clocks", history, "how the clocks moved against each other", columns_of_clocks, ""},
    {"communicators", filled, "NCCL communicators, a row each rank", columns_of_communicators,
     ", PRIMARY KEY(id, pid)"},
    {"collectives", view, "NCCL collectives, as they were put on streams", columns_of_collectives,
     "SELECT e.id, e.timestamp, e.duration_ns, e.pid, e.tid, e.op, c.communicator, NULLIF(e.arg1, 0), c.rank, "
     "c.nranks, NULLIF(e.arg2 >> 32 & 4294967295, 0), e.bytes, "
     "e.bytes / CASE WHEN e.arg2 & 15 IN (0, 1, 10, 11) THEN 1 WHEN e.arg2 & 15 IN (6, 9) THEN 2 "
     "WHEN e.arg2 & 15 IN (2, 3, 7) THEN 4 WHEN e.arg2 & 15 IN (4, 5, 8) THEN 8 END, "
     "CASE e.arg2 & 15 WHEN 0 THEN 'int8' WHEN 1 THEN 'uint8' WHEN 2 THEN 'int32' WHEN 3 THEN 'uint32' "
     "WHEN 4 THEN 'int64' WHEN 5 THEN 'uint64' WHEN 6 THEN 'float16' WHEN 7 THEN 'float32' WHEN 8 THEN 'float64' "
     "WHEN 9 THEN 'bfloat16' WHEN 10 THEN 'float8e4m3' WHEN 11 THEN 'float8e5m2' END, "
     "CASE e.arg2 >> 4 & 7 WHEN 0 THEN 'sum' WHEN 1 THEN 'prod' WHEN 2 THEN 'max' WHEN 3 THEN 'min' "
     "WHEN 4 THEN 'avg' WHEN 5 THEN 'own' END, "
     "CASE WHEN e.op_num IN (7, 8) THEN NULLIF(e.arg2 >> 11 & 2097151, 0) - 1 END, "
     "CASE WHEN e.op_num NOT IN (7, 8) THEN NULLIF(e.arg2 >> 11 & 2097151, 0) - 1 END, "
     "e.arg2 >> 7 & 7, e.stream, e.device, e.error, e.node "
     "FROM nccl_events e LEFT JOIN communicators c ON c.id = e.arg1 AND c.pid = e.pid "
     "WHERE e.op_num IN (3, 4, 5, 6, 7, 8, 104, 105) AND e.arg2 >> 10 & 1 = 0"},
    {"waits", view, "long waits of threads off the CPU, in calls and between them", columns_of_waits,
     "SELECT id, timestamp, end_ns, duration_ns, pid, tid, comm, depth, runnable_ns, blocked_ns, blocked_on, syscall, "
     "wait_detail(ret_code, arg1, arg2, stream), waker_pid, CASE WHEN waker_pid IS NOT NULL THEN NULLIF(arg0 & "
     "4294967295, 0) END, waker, preemptor_pid, "
     "preemptor, preemptor_ns, ret_code >> 8 & 1, arg0 >> 32 & 65535, cpu, split_uncertain, node "
     "FROM host_events WHERE op_num = 1"},
    {"socket_events", view, "errors and retransmits of sockets", columns_of_socket_events,
     "SELECT id, timestamp, pid, op, socket_peer(arg0, arg1, stream), errno_name(ret_code), "
     "CASE WHEN op_num = 1 THEN NULLIF(arg2, 0) END, node FROM net_events WHERE source_num = 6"},
    {"coverage", filled, "gaps in the recording, and lost records", columns_of_coverage, ""},
    {"schema_columns", filled, "descriptions of all tables and columns", columns_of_schema, ""},
});

}  // namespace

std::span<const SqlColumnInfo> event_columns() {
    return columns_of_events;
}

std::span<const SqlTableInfo> sql_tables() {
    return tables;
}

const SqlTableInfo* find_sql_table(std::string_view name) {
    const auto found =
        std::find_if(tables.begin(), tables.end(), [&](const auto& table) { return table.name == name; });
    return found == tables.end() ? nullptr : &*found;
}

std::string column_declarations(std::span<const SqlColumnInfo> columns) {
    std::string text;
    for (const SqlColumnInfo& column : columns) {
        if (!text.empty()) text += ", ";
        text.append("\"").append(column.name).append("\" ").append(column.type);
    }
    return text;
}

std::string sql_source_name(uint8_t source) {
    constexpr std::array<std::string_view, 10> published = {"",   "CUDA", "",    "HOST",  "DRIVER",
                                                            "IO", "TCP",  "NET", "GRAPH", "NCCL"};
    const std::string_view known = source_name(source);
    if (known != "unknown") return std::string(known);
    if (source < published.size() && !published[source].empty()) return std::string(published[source]);
    return "source-" + std::to_string(source);
}

}  // namespace ingero
