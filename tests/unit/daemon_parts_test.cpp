// The daemon's parts that need no kernel: what is read of /proc, which functions are probed, what a record becomes.
#include <elf.h>
#include <gmock/gmock.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "core/model/op.h"
#include "core/model/unique_fd.h"
#include "core/symbols/program_check.h"
#include "daemon/ingerod/config/config.h"
#include "daemon/ingerod/discovery/proc_fs.h"
#include "daemon/ingerod/ingest/ingest.h"
#include "daemon/ingerod/probes/attach/targets.h"
#include "daemon/ingerod/probes/kernel/kernel_features.h"
#include "daemon/ingerod/probes/probe_figures.h"
#include "daemon/ingerod/targets/other_names.h"
#include "daemon/ingerod/targets/programs.h"

using namespace ingero;

namespace {

TEST(MapsLine, of_an_executable_file_mapping_is_read) {
    const auto mapping = parse_maps_line("7f0a1000-7f0a2000 r-xp 00001000 fd:01 1234 /usr/lib/lib cuda.so.1 (deleted)");
    ASSERT_TRUE(mapping);
    EXPECT_EQ(mapping->start, 0x7f0a1000u);
    EXPECT_EQ(mapping->end, 0x7f0a2000u);
    EXPECT_TRUE(mapping->executable);
    EXPECT_EQ(mapping->file.inode, 1234u);
    EXPECT_EQ(mapping->path, "/usr/lib/lib cuda.so.1");
}

TEST(MapsLine, without_a_file_or_out_of_shape_is_no_mapping) {
    for (const char* line :
         {"", "7f-8f", "7f0a1000-7f0a2000 rw-p 00000000 00:00 0 ", "7f0a1000-7f0a2000 r-xp 0 00:00 0 [vdso]",
          "zz-yy r-xp 0 0:0 1 /x", "7f0a1000-7f0a2000 r-xp 00001000 fd:01 99999999999999999999999 /x"})
        EXPECT_FALSE(parse_maps_line(line)) << line;
}

TEST(StartTime, is_found_behind_a_command_of_any_characters) {
    const std::string stat = "77 (a) b) 1 2 (c) S 1 77 77 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1000 1";
    EXPECT_EQ(parse_start_time(stat), 42'420'000'000u);
    EXPECT_FALSE(parse_start_time("77 (x) S 1"));
    EXPECT_FALSE(parse_start_time(""));
}

TEST(UnitOfCgroup, is_the_innermost_service_or_scope) {
    EXPECT_EQ(unit_of_cgroup("/system.slice/vllm.service"), "vllm.service");
    EXPECT_EQ(unit_of_cgroup("/user.slice/user@1.service/app.scope/inner"), "app.scope");
    EXPECT_EQ(unit_of_cgroup("/"), "");
    EXPECT_EQ(unit_of_cgroup(""), "");
}

TEST(LibraryOfPath, knows_plain_versioned_and_hashed_names_only) {
    EXPECT_EQ(library_of_path("/opt/libcudart.so.12"), Library::cuda_runtime);
    EXPECT_EQ(library_of_path("/wheel/libcudart-d0da41ae.so.11.0"), Library::cuda_runtime);
    EXPECT_EQ(library_of_path("/usr/lib/libcuda.so.550.54.14"), Library::cuda_driver);
    EXPECT_EQ(library_of_path("/site-packages/nvidia/nccl/lib/libnccl.so.2"), Library::nccl);
    EXPECT_EQ(library_of_path("/wheel/libnccl-02ac91f0.so.2.18"), Library::nccl);
    for (const char* plugin : {"/opt/libnccl-net.so", "/opt/libnccl-tuner-ofi.so.1", "/opt/libncclras.so"})
        EXPECT_FALSE(library_of_path(plugin)) << plugin;
    EXPECT_FALSE(library_of_path("/usr/lib/libcudadebugger.so.1"));
    EXPECT_FALSE(library_of_path("/libcuda.so/notlib.txt"));
    EXPECT_FALSE(library_of_path(""));
}

TEST(Programs, AreToldFromLibrariesByTheirPaths) {
    for (const char* path : {"/usr/bin/python3.11", "/srv/job/a.out", "/opt/app/train.so-far"})
        EXPECT_TRUE(may_be_program(path)) << path;
    for (const char* path : {"/lib/x86_64-linux-gnu/libc.so.6", "/opt/plugin.so", "/dev/zero", "/memfd:x (deleted)",
                             "[vdso]", "anon_inode:[perf_event]", ""})
        EXPECT_FALSE(may_be_program(path)) << path;
}

TEST(Programs, WithoutASymbolTableAreNotReadFurther) {
    const auto may_have = [](const std::string& bytes) {
        const UniqueFd file(memfd_create("program", MFD_CLOEXEC));
        EXPECT_EQ(write(file.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
        return may_have_symbol_table(file.get());
    };
    Elf64_Ehdr header{};
    memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_shoff = sizeof(header);
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = 3;
    std::array<Elf64_Shdr, 3> sections{};
    const auto bytes = [&] {
        return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) +
               std::string(reinterpret_cast<const char*>(sections.data()), sizeof(sections));
    };
    sections[1].sh_type = SHT_DYNSYM;
    EXPECT_FALSE(may_have(bytes()));
    sections[2].sh_type = SHT_SYMTAB;
    EXPECT_TRUE(may_have(bytes()));
    EXPECT_FALSE(may_have(bytes().substr(0, bytes().size() - 1))) << "section headers beyond the end";
    EXPECT_FALSE(may_have(bytes().substr(0, 20)));
    EXPECT_FALSE(may_have(""));
    header.e_shnum = 0;  // more than fit the field: a worker counts them
    EXPECT_TRUE(may_have(bytes()));
    header.e_shoff = UINT64_MAX;
    EXPECT_FALSE(may_have(bytes()));
    header.e_shoff = sizeof(header);
    header.e_ident[EI_CLASS] = ELFCLASS32;
    EXPECT_FALSE(may_have(bytes()));
}

TEST(Targets, name_only_ops_of_the_catalogue_and_no_symbol_twice) {
    EXPECT_LT(all_targets().size(), size_t{INGERO_MAX_SYMBOLS}) << "one more is the function that is calibrated with";
    std::set<std::string_view> symbols;
    for (const Library library : all_libraries)
        for (const Target& target : targets_of(library)) {
            EXPECT_TRUE(find_op(target.op)) << target.symbol;
            EXPECT_TRUE(symbols.insert(target.symbol).second) << target.symbol;
            EXPECT_EQ(target.cookie & 0xffff, target.op);
            EXPECT_EQ(&all_targets()[(target.cookie >> 16) & 0xff], &target) << target.symbol;
            const uint64_t later = target.changed_in != 0 ? target.later_cookie : target.cookie;
            EXPECT_EQ((later >> 16) & 0xff, (target.cookie >> 16) & 0xff) << target.symbol;
        }
    for (const Op& op : all_ops()) {
        bool probed = false;
        for (const Library library : all_libraries)
            for (const Target& target : targets_of(library)) probed |= target.op == op.id;
        EXPECT_TRUE(probed) << op.name;
    }
}

TEST(ProbeSites, probe_each_function_once_and_every_version_of_a_name) {
    const std::vector<FunctionSymbol> symbols = {{"cudaMalloc", 0x100, 16, true},
                                                 {"cudaMalloc", 0x200, 16, true},
                                                 {"cudaLaunchKernel_ptsz", 0x300, 16, true},
                                                 {"cudaLaunchKernel", 0x300, 16, true},
                                                 {"unknown", 0x400, 16, true}};
    const auto sites = probe_sites(Library::cuda_runtime, 12, symbols);
    ASSERT_EQ(sites.size(), 3u);
    EXPECT_EQ(sites[0].file_offset, 0x100u);
    EXPECT_EQ(sites[1].file_offset, 0x200u);
    EXPECT_EQ(sites[2].file_offset, 0x300u);
    EXPECT_EQ(sites[2].symbol, "cudaLaunchKernel");
}

TEST(Decode, keeps_every_field_of_a_call_that_waited) {
    ingero_call_wait_record record{};
    record.call.type = INGERO_RECORD_CALL_WAIT;
    record.call.op = op::cudaLaunchKernel;
    record.call.duration_ns = 100;
    record.call.process_start_ns = 1'234'567'890;
    record.runnable_ns = 60;
    record.blocked_ns = 20;
    record.preemptor_tgid = 7;
    record.blocked_reason = INGERO_BLOCKED_FUTEX;
    record.last_wait_ns = 30;
    record.last_runnable_ns = 10;
    record.last_reason = INGERO_BLOCKED_IOCTL;
    record.tail_ns = 5;
    strcpy(record.preemptor_comm, "hog");
    Event event;
    ASSERT_TRUE(decode_call(std::as_bytes(std::span(&record, 1)), event));
    EXPECT_EQ(event.on_cpu_ns(), 20u);
    EXPECT_EQ(event.preemptor_tgid, 7u);
    EXPECT_EQ(to_string_view(event.preemptor_comm), "hog");
    EXPECT_EQ(event.blocked_reason, BlockedReason::futex);
    EXPECT_EQ(event.last_wait_ns, 30u);
    EXPECT_EQ(event.last_runnable_ns, 10u);
    EXPECT_EQ(event.last_reason, BlockedReason::ioctl);
    EXPECT_EQ(event.tail_ns, 5u);
    EXPECT_EQ(event.process_start_ns, 1'230'000'000u) << "in the unit of /proc";
}

TEST(Decode, says_how_often_times_count_where_that_is_less_often_than_the_call) {
    ingero_call_record record{};
    record.type = INGERO_RECORD_CALL;
    record.op = op::cudaLaunchKernel;
    record.weight = record.time_weight = 600;
    Event event;
    ASSERT_TRUE(decode_call(std::as_bytes(std::span(&record, 1)), event));
    EXPECT_EQ(event.times(), 600u);
    EXPECT_EQ(event.time_weight, 0u) << "what is usual takes no room in the store";
    record.time_weight = 100;
    ASSERT_TRUE(decode_call(std::as_bytes(std::span(&record, 1)), event));
    EXPECT_EQ(event.weight, 600u);
    EXPECT_EQ(event.times(), 100u);
}

TEST(FunctionRecord, ends_before_the_name_where_that_is_to_be_looked_for) {
    ingero_function_record record{};
    record.type = INGERO_RECORD_FUNCTION;
    record.tgid = 7;
    std::strcpy(record.name, "scale");
    FunctionRow row;
    uint64_t address = 1;
    const auto bytes = [&] { return std::as_bytes(std::span(&record, 1)); };
    constexpr size_t without_name = offsetof(ingero_function_record, name);
    ASSERT_TRUE(decode_function(bytes(), row, address));
    EXPECT_EQ(row.name, "scale");
    EXPECT_EQ(address, 0u);
    EXPECT_FALSE(decode_function(bytes().first(without_name), row, address)) << "no name, and nowhere to look for one";
    record.name_address = 0x1000;
    ASSERT_TRUE(decode_function(bytes().first(without_name), row, address));
    EXPECT_EQ(row.name, "");
    EXPECT_EQ(row.process.pid, 7u);
    EXPECT_EQ(address, 0x1000u);
    EXPECT_FALSE(decode_function(bytes().first(without_name - 1), row, address));
}

TEST(Decode, refuses_what_is_too_short_or_no_call) {
    ingero_call_record record{};
    record.type = INGERO_RECORD_CALL_WAIT;  // claims to be longer than it is
    Event event;
    EXPECT_FALSE(decode_call(std::as_bytes(std::span(&record, 1)), event));
    record.type = 99;
    EXPECT_FALSE(decode_call(std::as_bytes(std::span(&record, 1)), event));
    EXPECT_FALSE(decode_call({}, event));
}

TEST(Decode, of_a_wait_whose_end_was_not_seen_it_is_known_only_how_long_it_was_at_most) {
    ingero_wait_record record{};
    record.type = INGERO_RECORD_WAIT;
    record.op = INGERO_OP_WAITS_SUMMED;
    record.flags = INGERO_CALL_SPLIT_UNCERTAIN;
    record.duration_ns = 40'000'000;
    record.waits = 1;
    WaitRow row;
    ASSERT_TRUE(decode_wait(std::as_bytes(std::span(&record, 1)), row));
    EXPECT_EQ(row.event.duration_ns, 40'000'000u);
    EXPECT_EQ(row.event.args[1], 40'000'000u);
    EXPECT_EQ(row.event.blocked_ns + row.event.runnable_ns, 0u);
    record.flags = 0;
    record.blocked_ns = 30'000'000;
    record.runnable_ns = 1'000'000;
    ASSERT_TRUE(decode_wait(std::as_bytes(std::span(&record, 1)), row));
    EXPECT_EQ(row.event.duration_ns, 31'000'000u);
}

TEST(KernelFeatures, that_are_denied_are_not_there_and_say_why) {
    KernelFeatures features({Feature::uprobe_session, Feature::uprobe_multi, Feature::perf_uprobe});
    EXPECT_FALSE(features.has(Feature::uprobe_session));
    EXPECT_EQ(features.why_not(Feature::uprobe_session), "denied by option");
    EXPECT_EQ(features.attach_method(), AttachMethod::none);
    EXPECT_FALSE(feature_from_string("warp-drive"));
}

/// As functions are attached to by perf uprobes.
bool may_open_perf_uprobe() {
    perf_event_attr attributes{};
    attributes.size = sizeof(attributes);
    std::ifstream("/sys/bus/event_source/devices/uprobe/type") >> attributes.type;
    // Which nobody runs.
    const std::string file = testing::TempDir() + "perf-uprobe-" + std::to_string(getpid());
    std::filesystem::copy_file("/bin/true", file);
    attributes.config1 = reinterpret_cast<uintptr_t>(file.c_str());
    attributes.config2 = 0x2000;
    const UniqueFd opened(static_cast<int>(syscall(SYS_perf_event_open, &attributes, -1, 0, -1, 0)));
    unlink(file.c_str());
    return static_cast<bool>(opened);
}

TEST(KernelFeatures, perf_uprobes_are_there_for_who_may_open_one) {
    if (access("/sys/bus/event_source/devices/uprobe/type", R_OK) != 0) GTEST_SKIP() << "SKIPPED: no perf uprobes here";
    for (const bool is_admin : {true, false}) {
        const pid_t child = fork();
        if (child == 0) {
            __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
            std::array<__user_cap_data_struct, 2> data{};
            syscall(SYS_capget, &header, data.data());
            if (!is_admin) data[CAP_SYS_ADMIN / 32].effective &= ~(1u << CAP_SYS_ADMIN % 32);
            if (syscall(SYS_capset, &header, data.data()) != 0) _exit(2);
            KernelFeatures features;
            const bool told = features.has(Feature::perf_uprobe);
            if (told != features.why_not(Feature::perf_uprobe).empty()) _exit(3);
            _exit(told == may_open_perf_uprobe() ? 0 : 1);
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(WEXITSTATUS(status), 0) << (is_admin ? "with" : "without") << " CAP_SYS_ADMIN";
    }
}

TEST(Config, tells_which_keys_differ_and_which_of_them_a_reload_takes_up) {
    Config before, after;
    EXPECT_TRUE(changed_keys(before, after).empty());
    after.node = "other";
    after.store_max_size_bytes += 1;
    after.worker_deadline += std::chrono::seconds(1);
    EXPECT_THAT(changed_keys(before, after), testing::ElementsAre("node.name", "store.max_size", "workers.deadline"));
    EXPECT_TRUE(applies_on_reload("workers.deadline"));
    EXPECT_FALSE(applies_on_reload("node.name"));
    EXPECT_FALSE(applies_on_reload("no.such"));
}

TEST(Config, sets_every_key_and_names_the_line_of_a_bad_one) {
    Config config;
    ASSERT_TRUE(apply_config_text(config,
                                  "[node]\nname = \"n1\"\n[store]\npath = \"/s\"\nmax_size = \"1GiB\"\n"
                                  "max_age = \"2d\"\nrollup_age = \"90d\"\n"
                                  "[workers]\ncount = 3\nmemory = \"128MiB\"\ndeadline = \"5s\"\n",
                                  "c"));
    EXPECT_EQ(config.node, "n1");
    EXPECT_EQ(config.store_path, "/s");
    EXPECT_EQ(config.store_max_size_bytes, 1u << 30);
    EXPECT_EQ(config.store_max_age_ns, 2 * 86'400'000'000'000u);
    EXPECT_EQ(config.store_rollup_age_ns, 90 * 86'400'000'000'000u);
    EXPECT_EQ(config.worker_count, 3u);
    EXPECT_EQ(config.worker_memory_bytes, 128u << 20);
    EXPECT_EQ(config.worker_deadline, std::chrono::milliseconds(5000));
    for (const char* text :
         {"\n\n[store]\nmax_size = 5", "\n\n[store]\nmax_age = \"1m\"", "\n\n[store]\npath = \"relative\"",
          "\n\n[spans]\nburst = -1", "\n\n[spans]\nconnections = 241", "\n\n[spans]\nmax_span = \"25h\"",
          "\n\n[spans]\nmax_span = 5", "\n\n[workers]\ncount = 99", "\n\n[workers]\ndeadline = \"soon\"",
          "\n\n[nowhere]\nx = 1", "\n\nstore = 1"}) {
        const auto result = apply_config_text(config, text, "c");
        ASSERT_FALSE(result) << text;
        EXPECT_TRUE(result.error().message.starts_with("c:4: ") || result.error().message.starts_with("c:3: "))
            << result.error().message;
        EXPECT_FALSE(result.error().hint.empty());
    }
}

TEST(Config, is_read_again_as_it_was_written) {
    Config config, again;
    ASSERT_TRUE(apply_config_text(
        config,
        "[node]\nname = \"n\\\"1\"\n[capture]\nstacks = \"off\"\noverhead_budget = 0.5\nslices = false\ninflight_floor "
        "= \"1500ms\"\n"
        "trusted_fuse = [\"/a b/*\"]\nwait_floor = \"off\"\ninclude = [\"comm:python*\"]\nexclude = "
        "[\"unit:a.service\"]\n"
        "[diagnosis]\nclose_after = \"90s\"\nstraggler_floor = \"2500us\"\nstraggler_step_percent = 7\n"
        "straggler_late_percent = 70\nstraggler_ranges = 60\n[processes]\ncmdline = \"comm\"\nenviron_allow = "
        "[\"JOB\"]\n"
        "named_others = []\n[relay]\ngpu_poll = \"250ms\"\n[spans]\nhash_ids = true\nrate = 10\nburst = 7\nconnections "
        "= 3\nmax_span = \"90s\"\n[store]\npath = "
        "\"/s\"\n"
        "max_size = \"1536MiB\"\nmax_age = \"36h\"\nrollup_age = \"90d\"\n[workers]\ncount = 3\nmemory = \"128MiB\"\n"
        "deadline = \"5s\"\n",
        "c"));
    const std::string text = to_text(config);
    const auto applied = apply_config_text(again, text, "c");
    ASSERT_TRUE(applied) << applied.error().message << "\n" << text;
    EXPECT_THAT(changed_keys(config, again), testing::IsEmpty()) << text;
    EXPECT_THAT(changed_keys(Config(), again), testing::SizeIs(30)) << "each key has another value than by default";
    for (const char* line : {"max_size = \"1536MiB\"", "max_age = \"36h\"", "wait_floor = \"off\"", "[workers]"})
        EXPECT_THAT(text, testing::HasSubstr(line));
    EXPECT_THAT(to_text(Config()), testing::HasSubstr("max_age = \"30d\""));
}

TEST(ProbeCounts, of_what_all_users_call_are_for_those_who_see_all) {
    SymbolCounters counters(all_targets().size());
    const auto of = [&](std::string_view symbol) -> ingero_call_counters& {
        const auto target = std::find_if(all_targets().begin(), all_targets().end(),
                                         [&](const Target& one) { return one.symbol == symbol; });
        return counters.at(static_cast<size_t>(target - all_targets().begin()));
    };
    of("cudaLaunchKernel").entries = of("cudaLaunchKernel").records = 7;
    of("cudaLaunchKernel_ptsz").entries = of("cudaLaunchKernel_ptsz").records = 2;
    of("cuMemAlloc_v2").entries = of("cuMemAlloc_v2").thinned = 5;
    const std::map<OpId, size_t> functions = {{op::cudaLaunchKernel, 2}};
    const auto all = probe_counts(functions, counters, true), own = probe_counts(functions, counters, false);
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all[0].at("hits"), 9);
    EXPECT_EQ(all[0].at("lost_ring"), 0);
    const nlohmann::json launches = {{{"symbol", "cudaLaunchKernel"}, {"hits", 7}},
                                     {{"symbol", "cudaLaunchKernel_ptsz"}, {"hits", 2}}};
    EXPECT_EQ(all[0].at("symbols"), launches);
    EXPECT_EQ(all[1].at("thinned"), 5);
    ASSERT_EQ(own.size(), 1u) << "that others call a function is told by the row itself";
    EXPECT_EQ(own[0].at("functions"), 2);
    for (const char* name :
         {"hits", "symbols", "records", "lost_ring", "lost_frames", "lost_depth", "thinned", "uncertain"})
        EXPECT_TRUE(own[0].at(name).is_null()) << name;
}

TEST(OtherNames, are_told_where_they_may_be_and_of_the_own_process_and_the_kernel_always) {
    Config config;
    EXPECT_FALSE(OtherNames(config.named_others).hides_any());
    ASSERT_TRUE(apply_config_text(config, "[processes]\nnamed_others = [\"cpu-*\"]\n", "c"));
    EXPECT_FALSE(applies_on_reload("processes.named_others"));
    for (const char* text : {"[processes]\nnamed_others = \"*\"", "[processes]\nnamed_others = [1]",
                             "[processes]\nnamed_others = [\"seventeen-letters\"]"})
        EXPECT_FALSE(apply_config_text(config, text, "c")) << text;

    const OtherNames names(config.named_others);
    Event event;
    event.tgid = 7;
    event.preemptor_tgid = 9;
    event.preemptor_comm = to_comm("cpu-hog");
    event.waker_tgid = 7;
    event.waker_comm = to_comm("own-thread");
    names.hide(event);
    EXPECT_EQ(to_string_view(event.preemptor_comm), "cpu-hog");
    EXPECT_EQ(to_string_view(event.waker_comm), "own-thread");
    event.preemptor_comm = to_comm("secret-project");
    event.waker_tgid = INGERO_PID_OUTSIDE;
    event.waker_comm = to_comm("neighbour");
    names.hide(event);
    EXPECT_EQ(to_string_view(event.preemptor_comm), "program-9");
    EXPECT_EQ(to_string_view(event.waker_comm), "program");
    event.preemptor_comm = to_comm("kworker/0:1");
    event.waker_comm = {};
    names.hide(event);
    EXPECT_EQ(to_string_view(event.preemptor_comm), "kworker/0:1");
    EXPECT_EQ(to_string_view(event.waker_comm), "");
}

TEST(Config, says_after_how_long_an_incident_is_over) {
    Config config;
    ASSERT_TRUE(apply_config_text(config, "[diagnosis]\nclose_after = \"2m\"\n", "c"));
    EXPECT_EQ(config.close_after_ns, 120'000'000'000u);
    EXPECT_THAT(changed_keys(Config(), config), testing::ElementsAre("diagnosis.close_after"));
    for (const char* text : {"close_after = 15", "close_after = \"500ms\"", "close_after = \"2h\""})
        EXPECT_FALSE(apply_config_text(config, std::string("[diagnosis]\n") + text, "c")) << text;
}

TEST(Config, says_from_when_on_a_rank_is_late) {
    Config config;
    ASSERT_TRUE(apply_config_text(config,
                                  "[diagnosis]\nstraggler_floor = \"5ms\"\nstraggler_step_percent = 10\n"
                                  "straggler_late_percent = 80\nstraggler_ranges = 20\n",
                                  "c"));
    EXPECT_EQ(config.stragglers.floor_ns, 5'000'000u);
    EXPECT_EQ(config.stragglers.step_percent, 10u);
    EXPECT_EQ(config.stragglers.late_percent, 80u);
    EXPECT_EQ(config.stragglers.ranges, 20u);
    EXPECT_THAT(changed_keys(Config(), config),
                testing::ElementsAre("diagnosis.straggler_floor", "diagnosis.straggler_late_percent",
                                     "diagnosis.straggler_ranges", "diagnosis.straggler_step_percent"));
    EXPECT_TRUE(applies_on_reload("diagnosis.straggler_floor"));
    for (const char* text : {"straggler_floor = 5", "straggler_floor = \"1us\"", "straggler_late_percent = 5",
                             "straggler_ranges = 2", "straggler_step_percent = \"5\""})
        EXPECT_FALSE(apply_config_text(config, std::string("[diagnosis]\n") + text, "c")) << text;
}

}  // namespace
