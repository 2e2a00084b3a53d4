#include <gtest/gtest.h>

#include <string>

#include "core/spans/scope.h"

using namespace ingero;

namespace {

const std::string container_id(64, 'a');

TEST(ScopeOfCgroup, IsTheDeepestServiceScopeOrContainer) {
    EXPECT_EQ(scope_of_cgroup("/system.slice/vllm.service"), "/system.slice/vllm.service");
    EXPECT_EQ(scope_of_cgroup("/system.slice/vllm.service/workers/0"), "/system.slice/vllm.service");
    EXPECT_EQ(scope_of_cgroup("/system.slice/run-u12.scope"), "/system.slice/run-u12.scope");
    EXPECT_EQ(scope_of_cgroup("/user.slice/user-1000.slice/user@1000.service/app.slice/train.service"),
              "/user.slice/user-1000.slice/user@1000.service/app.slice/train.service");
    for (const std::string& container :
         {"/docker/" + container_id, "/system.slice/docker-" + container_id + ".scope",
          "/kubepods/burstable/podx/" + container_id,
          "/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:" + container_id,
          std::string("/lxc.payload.web")}) {
        EXPECT_EQ(scope_of_cgroup(container), container);
        EXPECT_EQ(scope_of_cgroup(container + "/init.scope"), container);
    }
}

TEST(ScopeOfCgroup, OfAStepOfSlurmIsThatStepsAlone) {
    for (const std::string scope : {"/system.slice/slurmstepd.scope", "/system.slice/node1_slurmstepd.scope"}) {
        EXPECT_EQ(scope_of_cgroup(scope + "/job_7/step_0/user/task_0"), scope + "/job_7/step_0");
        EXPECT_EQ(scope_of_cgroup(scope + "/job_7/step_batch"), scope + "/job_7/step_batch");
        EXPECT_EQ(scope_of_cgroup(scope + "/job_7/slurm"), scope + "/job_7");
        EXPECT_EQ(scope_of_cgroup(scope + "/job_7"), scope + "/job_7");
        EXPECT_EQ(scope_of_cgroup(scope + "/system"), "");
        EXPECT_EQ(scope_of_cgroup(scope), "");
        EXPECT_EQ(scope_of_cgroup(scope + "/job_7/step_0/docker/" + container_id),
                  scope + "/job_7/step_0/docker/" + container_id);
    }
}

TEST(ScopeOfCgroup, IsNoneWhereStrangersMeet) {
    for (const char* cgroup :
         {"", "/", "/init.scope", "/user.slice", "/user.slice/user-1000.slice",
          "/user.slice/user-1000.slice/session-3.scope", "/user.slice/user-1000.slice/session-3.scope/deeper",
          "/user.slice/user-1000.slice/user@1000.service", "/user.slice/user-1000.slice/user@1000.service/init.scope",
          "/system.slice", "/machine.slice", "relative.service", "/docker/abc", "/kubepods"})
        EXPECT_EQ(scope_of_cgroup(cgroup), "") << cgroup;
}

}  // namespace
