// What a process is part of: from recorded /proc trees, and from hostile ones.
#include "core/model/process/process_facts.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/render/render.h"
#include "daemon/ingerod/discovery/proc_fs.h"
#include "test_paths.h"

using namespace ingero;
using nlohmann::json;
using namespace std::string_literals;

namespace {

std::string slurp(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

void write(const std::filesystem::path& path, const std::string& text) {
    std::ofstream(path) << text;
}

/// Its files as the kernel has them: strings that end in a zero byte, where the recording has lines.
std::string zero_ended(std::string lines) {
    std::replace(lines.begin(), lines.end(), '\n', '\0');
    return lines;
}

class ProcTree : public testing::Test {
  protected:
    static constexpr uint32_t pid = 77;

    ProcTree() {
        std::string name = (std::filesystem::temp_directory_path() / "proc-XXXXXX").string();
        root_ = mkdtemp(name.data());
        std::filesystem::create_directory(root_ / "77");
        file("stat", "77 (train) S 1 77 77 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1000 1");
        file("status",
             "Name:\ttrain\nTgid:\t77\nPPid:\t12\nUid:\t1000\t1000\t1000\t1000\nCpus_allowed_list:\t0-3,8\n"
             "Mems_allowed_list:\t1\n");
    }
    ~ProcTree() override { std::filesystem::remove_all(root_); }

    void file(const std::string& name, const std::string& text) { write(root_ / "77" / name, text); }
    Process read(const FactsOptions& options = {}) {
        const ProcFs proc(root_.string());
        auto process = proc.read_process(pid);
        EXPECT_TRUE(process);
        if (!process) return {};
        process->facts = proc.read_facts(process->key, options);
        return *process;
    }

    std::filesystem::path root_;
};

class Recorded : public ProcTree, public testing::WithParamInterface<std::string> {};

TEST_P(Recorded, process_tree_says_what_it_is_part_of) {
    const std::filesystem::path recording = std::filesystem::path(INGERO_TEST_DATA) / "proc" / GetParam();
    file("cgroup", slurp(recording / "cgroup"));
    file("environ", zero_ended(slurp(recording / "environ")));
    file("cmdline", zero_ended(slurp(recording / "cmdline")));
    const json found = process_json(read());
    const json expected = json::parse(slurp(recording / "expected.json"));
    for (const auto& [name, value] : expected.items()) EXPECT_EQ(found.at(name), value) << name;
    EXPECT_EQ(found.at("parent_pid"), 12);
    EXPECT_EQ(found.at("cpus_allowed"), "0-3,8");
    EXPECT_EQ(found.at("mems_allowed"), "1");
}

std::vector<std::string> recordings() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(INGERO_TEST_DATA) / "proc"))
        names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
    std::string name = info.param;
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
}

INSTANTIATE_TEST_SUITE_P(Of, Recorded, testing::ValuesIn(recordings()), test_name);

TEST_F(ProcTree, of_another_process_by_now_says_nothing) {
    file("cgroup", "0::/system.slice/train.service\n");
    file("environ", "RANK=1\0WORLD_SIZE=2\0"s);
    const ProcFs proc(root_.string());
    EXPECT_EQ(proc.read_facts({pid, 42'420'000'000}, {}).rank, 1u);
    EXPECT_EQ(proc.read_facts({pid, 42'430'000'000}, {}), ProcessFacts());
}

TEST_F(ProcTree, has_a_number_in_its_innermost_namespace) {
    const ProcFs proc(root_.string());
    EXPECT_EQ(proc.innermost_pid_of(pid), std::nullopt) << "of a kernel without namespaces";
    file("status", "Name:\ttrain\nTgid:\t77\nNSpid:\t77\nUid:\t1000\n");
    EXPECT_EQ(proc.innermost_pid_of(pid), 77u);
    file("status", "Name:\ttrain\nTgid:\t77\nNSpid:\t77\t12\t3\nUid:\t1000\n");
    EXPECT_EQ(proc.innermost_pid_of(pid), 3u);
    EXPECT_EQ(proc.innermost_pid_of(pid + 1), std::nullopt);
}

TEST_F(ProcTree, keeps_only_allowed_variables_and_those_cut_short) {
    file("environ", "HF_TOKEN=hf_abc\0JOB_NAME="s + std::string(5'000, 'x') + "\0JOB_NAME=again\0\0=\0novalue\0"s);
    const Process process = read({.command = KeepCommand::comm, .environ_allow = {"JOB_NAME"}});
    ASSERT_EQ(process.facts.environment.size(), 1u);
    EXPECT_EQ(process.facts.environment[0].second, std::string(max_kept_value_bytes, 'x'));
    EXPECT_EQ(process.facts.command, "");
    EXPECT_EQ(process_json(process).dump().find("hf_abc"), std::string::npos);
}

TEST_F(ProcTree, that_is_hostile_comes_out_inert) {
    const std::string evil = "\x1b]0;owned\x07\xe2\x80\xae\xff\n";
    file("cgroup", "0::/docker-" + evil + ".scope/pod" + evil + "/job_" + evil + "/ecs/" + evil + "\n\n:::\n::\n1:\n");
    file("environ", "RANK=" + evil + "\0SLURM_JOB_ID="s + evil + "\0POD_NAME="s + evil + "\0HOSTNAME="s + evil +
                        "\0KUBERNETES_SERVICE_HOST=x\0CUDA_VISIBLE_DEVICES="s + evil + "\0"s);
    file("cmdline", evil + "\0--"s + evil + "\0--model\0"s + evil + "\0--x="s + evil + "\0"s + evil + "=1\0"s);
    const Process process = read();
    EXPECT_EQ(process.facts.rank, std::nullopt);
    for (const std::string* text :
         {&process.facts.container, &process.facts.pod_uid, &process.facts.slurm_job, &process.facts.ecs_task,
          &process.facts.pod_name, &process.facts.cuda_visible_devices})
        EXPECT_EQ(*text, "");
    for (const char c : process.facts.command) EXPECT_TRUE(c >= ' ' && c < 0x7f) << int{c};
    json answer = {{"processes", json::array({process_json(process)})}};
    for (const char c : text_processes(answer)) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= ' ');
}

/// A group of a real hierarchy, v1 or v2, whichever takes one; removed in the end, after its processes.
class RealGroup {
  public:
    explicit RealGroup(const std::string& below) {
        for (const char* hierarchy : {"", "/unified", "/systemd", "/memory", "/pids", "/freezer", "/cpu"}) {
            std::error_code error;
            const std::filesystem::path root = std::string("/sys/fs/cgroup") + hierarchy;
            if (!std::filesystem::exists(root / "cgroup.procs", error)) continue;
            top_ = root / ("ingero-test-" + std::to_string(getpid()));
            path_ = top_ / below;
            if (std::filesystem::create_directories(path_, error)) return;
        }
        path_.clear();
    }
    ~RealGroup() {
        for (auto at = path_; !at.empty() && at != top_.parent_path(); at = at.parent_path()) rmdir(at.c_str());
    }
    bool exists() const { return !path_.empty(); }
    bool take(pid_t pid) const {
        std::ofstream file(path_ / "cgroup.procs");
        file << pid << std::flush;
        return file.good();
    }

  private:
    std::filesystem::path top_, path_;
};

/// A program that waits, with an environment of its own; killed in the end.
class Sleeper {
  public:
    Sleeper(std::vector<const char*> environment) {
        environment.push_back(nullptr);
        const char* command[] = {"sleep", "1000", nullptr};
        if (posix_spawn(&pid_, "/bin/sleep", nullptr, nullptr, const_cast<char**>(command),
                        const_cast<char**>(environment.data())) != 0)
            pid_ = -1;
    }
    ~Sleeper() {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    pid_t pid() const { return pid_; }

  private:
    pid_t pid_ = -1;
};

TEST(RealProcess, in_a_real_group_says_what_it_is_part_of) {
    const std::string id(64, 'a'), uid = "3f5a1c9e-6d2b-4c8f-9a17-0b2f4e6d8c1a";
    const RealGroup group("kubepods/pod" + uid + "/" + id);
    if (!group.exists()) GTEST_SKIP() << "no control group can be made here";
    const Sleeper program({"RANK=3", "WORLD_SIZE=8", "HOSTNAME=worker-0", "AWS_SECRET_ACCESS_KEY=hunter2"});
    ASSERT_GT(program.pid(), 0);
    ASSERT_TRUE(group.take(program.pid()));
    const ProcFs proc;
    auto process = proc.read_process(static_cast<uint32_t>(program.pid()));
    ASSERT_TRUE(process);
    process->facts = proc.read_facts(process->key, {});
    EXPECT_EQ(process->facts.container, id);
    EXPECT_EQ(process->facts.pod_uid, uid);
    EXPECT_EQ(process->facts.pod_name, "worker-0");
    EXPECT_EQ(process->facts.rank, 3u);
    EXPECT_EQ(process->parent_pid, static_cast<uint32_t>(getpid()));
    EXPECT_FALSE(process->cpus_allowed.empty());
    EXPECT_EQ(process_json(*process).dump().find("hunter2"), std::string::npos);
}

TEST(RealProcess, in_a_group_of_a_hostile_name_is_part_of_nothing) {
    const RealGroup group("docker-\x1b]0;owned\x07.scope/pod\xe2\x80\xae/job_1;rm");
    if (!group.exists()) GTEST_SKIP() << "no control group can be made here";
    const Sleeper program({});
    ASSERT_TRUE(group.take(program.pid()));
    const ProcFs proc;
    const auto process = proc.read_process(static_cast<uint32_t>(program.pid()));
    ASSERT_TRUE(process);
    const ProcessFacts facts = proc.read_facts(process->key, {.command = KeepCommand::comm, .environ_allow = {}});
    EXPECT_EQ(facts, ProcessFacts());
}

TEST(Ranks, that_cannot_be_are_none) {
    const auto rank = [](const std::string& environment) {
        ProcessFacts facts;
        read_environ_facts(zero_ended(environment), {}, facts);
        return facts.rank;
    };
    EXPECT_EQ(rank("RANK=1\nWORLD_SIZE=2\n"), 1u);
    EXPECT_EQ(rank("RANK=2\nWORLD_SIZE=2\n"), std::nullopt);
    EXPECT_EQ(rank("RANK=2\nWORLD_SIZE=2\nSLURM_PROCID=1\nSLURM_NTASKS=4\n"), 1u) << "another family says what can be";
    for (const char* value : {"-1", "", " 1", "1x", "0x1", "99999999999", "2147483648", "1.0"})
        EXPECT_EQ(rank("RANK=" + std::string(value) + "\n"), std::nullopt) << value;
    EXPECT_EQ(rank("RANK=1\nRANK=0\n"), 1u) << "the first, as getenv() has it";
}

std::string redacted(const std::string& arguments) {
    return redact_command(zero_ended(arguments));
}

TEST(Redaction, keeps_no_secret_in_whatever_place) {
    const std::vector<std::string> secrets = {"hunter2",
                                              "correct horse",
                                              "S3cr3t!",
                                              "1234",
                                              "sk-proj-a8f3",
                                              "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
                                              "hf_JxKqPbWvTzYmNd",
                                              "eyJhbGciOiJIUzI1NiJ9",
                                              "p4ss.word",
                                              "letmein",
                                              "aHVudGVyMg==",
                                              "bGV0bWVpbg=",
                                              "550e8400-e29b-41d4-a716-446655440000"};
    const std::vector<std::string> places = {"app\n--password\n%",
                                             "app\n--password=%",
                                             "app\n--api-key\n%",
                                             "app\n--api_key=%",
                                             "app\n-p\n%",
                                             "app\n-p%",
                                             "app\n-p=%",
                                             "app\n--db\npostgres://u:%@host/db",
                                             "app\nhttps://user:%@host/",
                                             "app\nTOKEN=%",
                                             "app\nexport X_SECRET=% foo",
                                             "curl\n-H\nAuthorization: Bearer %",
                                             "curl\n-u\nme:%",
                                             "app\n%",
                                             "app\n--\n%",
                                             "mysql\n--user=root\n--password=%",
                                             "app\n--hf-token\n%",
                                             "app --password % --port 80",
                                             "app\n-c\nprint('%')",
                                             "app\n--auth.passphrase=%",
                                             "app\n+trainer.secret=%",
                                             "app\n--pin\n%",
                                             "app\n--otp=%",
                                             "app\n-Dkey=%",
                                             "app\n--password\n%.py",
                                             "app\n--password=%.py",
                                             "app\n-token\n%",
                                             "app\n-token\n%.py",
                                             "app\n-token=%.py",
                                             "app\n--db-url=postgres://u:%@h",
                                             "app\n--db-url\npostgres://u:%@h/debug.py",
                                             "curl\n-uuser:%",
                                             "curl\n-u\n%.py",
                                             "app\nAuthorization: Bearer %",
                                             "app\n--header=Authorization: Bearer %",
                                             "app\n{\"password\": \"%\"}",
                                             "app\n{\"a\":1,\"token\"=\"%\"}",
                                             "app\n--json\n{\"token\":\"%\"}",
                                             "app\n--extra={\"k\":\"%\"}",
                                             "env\nA_TOKEN=%\napp",
                                             "A_TOKEN=% app",
                                             "app\n--env\nA_TOKEN=%",
                                             "docker\nrun\n-e\nA_TOKEN=%",
                                             "app\n-eA_TOKEN=%",
                                             "app\nhttps://h/?token=%&debug=1",
                                             "app\n--pw\n%",
                                             "app\n--db_pw=%.json",
                                             "app\n--wifi-psk=%",
                                             "app\n--ssn\n%",
                                             "app\n--jwt=%",
                                             "app\n-w\n%",
                                             "app\n-w\n%.py",
                                             "app\n-m\n%",
                                             "app\n-m\n%.py",
                                             "python3\ntrain.py\n-m\n%",
                                             "python3\n-m\njob\n-m\n%",
                                             "python3\n-c\n%",
                                             "python3\n-W\n%",
                                             "python3\n-=%",
                                             "python3\n-m=%",
                                             "python3\n-um=%",
                                             "torchrun\n-m=%",
                                             "app\n--password\n-%",
                                             "app --password correct % debug.py",
                                             "app --header Authorization: Bearer % x"};
    for (const std::string& secret : secrets)
        for (std::string place : places) {
            place.replace(place.find('%'), 1, secret);
            const std::string text = redacted(place);
            // Of base64 what comes before its padding says all.
            const std::string stem = secret.substr(0, secret.find('='));
            EXPECT_EQ(text.find(stem), std::string::npos) << place << " gives " << text;
        }
    EXPECT_EQ(redacted("app\n--password\n123456.py"), "app --password ***");
    EXPECT_EQ(redacted("app\n--password\n--hunter2"), "app --password ***");
    EXPECT_EQ(redacted("app\n--passwordhunter2\n--token1234=5"), "app --*** --***");
    EXPECT_EQ(redacted("app --password correct debug --port 80"), "app --password *** *** --port 80") << "a title";
}

TEST(Redaction, leaves_what_says_what_is_run) {
    EXPECT_EQ(redacted("/usr/bin/python3\n-m\nvllm.entrypoints.openai.api_server\n--model\nmeta-llama/Llama-3.1-8B\n"
                       "--tensor-parallel-size\n4\n--dtype\nbfloat16\n--gpu-memory-utilization=0.9\n"
                       "--enable-prefix-caching\n--host\n10.0.0.7x"),
              "/usr/bin/python3 -m vllm.entrypoints.openai.api_server --model meta-llama/Llama-3.1-8B "
              "--tensor-parallel-size 4 --dtype bfloat16 --gpu-memory-utilization=0.9 --enable-prefix-caching "
              "--host ***");
    EXPECT_EQ(redacted("torchrun\n--nproc-per-node=8\ntrain.py\ntrainer.devices=8\ndb.url=x:y"),
              "torchrun --nproc-per-node=8 train.py trainer.devices=8 db.url=***");
    EXPECT_EQ(redacted("serve\n--use-auth-token\n--model\nllama\n--api-key\n--port=80"),
              "serve --use-auth-token --model llama --api-key --port=80")
        << "an option after one that may have a secret stays";
    EXPECT_EQ(redacted("python3\n-u\n-OO\n/opt/bin/torchrun\n--nnodes\n2\n-m\njob.train\n-m\nx"),
              "python3 -u -OO /opt/bin/torchrun --nnodes 2 -m job.train -m ***");
    EXPECT_EQ(redacted("python3\n-um\ntorch.distributed.run\ntrain.py\n-m\nx"),
              "python3 -um torch.distributed.run train.py -m ***");
    EXPECT_EQ(redacted("accelerate\nlaunch\n-m\njob.train"), "accelerate launch -m job.train");
    EXPECT_EQ(redacted("bash\n-x\n-e\n--login"), "bash -x -e --login");
    EXPECT_EQ(redacted("java\n-jar\nserver.jar"), "java -jar server.jar");
    EXPECT_EQ(redacted("ray::Worker run"), "*** run") << "a title that a program wrote over its arguments";
    EXPECT_EQ(redacted(""), "");
}

TEST(Redaction, is_bounded) {
    std::string many;
    for (int i = 0; i < 10'000; ++i) many += "--option\n";
    EXPECT_LE(redacted(many).size(), max_command_bytes);
    EXPECT_LE(redacted(std::string(100'000, 'a')).size(), max_command_bytes);
    EXPECT_LE(join_command(many).size(), max_command_bytes);
}

}  // namespace
