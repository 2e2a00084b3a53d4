// [capture] include and exclude: what a pattern is, and whom it matches.
#include "daemon/ingerod/targets/capture_policy.h"

#include <gmock/gmock.h>

#include "daemon/ingerod/config/config.h"

using namespace ingero;

namespace {

using testing::HasSubstr;

Process process(uint32_t uid, const std::string& comm, const std::string& cgroup = "/", const std::string& unit = {}) {
    Process result;
    result.key = {1, 1};
    result.uid = uid;
    result.comm = comm;
    result.cgroup = cgroup;
    result.unit = unit;
    return result;
}

bool captures(const std::vector<std::string>& include, const std::vector<std::string>& exclude,
              const Process& process) {
    const auto policy = CapturePolicy::parse(include, exclude);
    EXPECT_TRUE(policy) << policy.error().message;
    return policy && !policy->excluded_by(process);
}

std::string error_of(const std::string& pattern) {
    const auto parsed = CapturePolicy::parse({pattern}, {});
    return parsed ? "" : parsed.error().message;
}

TEST(ACapturePolicy, without_patterns_captures_all) {
    EXPECT_TRUE(CapturePolicy().captures_all());
    EXPECT_TRUE(captures({}, {}, process(0, "anything")));
}

TEST(ACapturePolicy, leaves_out_what_exclude_names) {
    EXPECT_FALSE(captures({}, {"comm:python*"}, process(0, "python3.11")));
    EXPECT_TRUE(captures({}, {"comm:python*"}, process(0, "xpython")));
    EXPECT_FALSE(
        captures({}, {"unit:backup.service"}, process(0, "x", "/system.slice/backup.service", "backup.service")));
    EXPECT_FALSE(captures({}, {"cgroup:/system.slice/*"}, process(0, "x", "/system.slice/a.service/inner")))
        << "* spans slashes";
    EXPECT_TRUE(captures({}, {"cgroup:/system.slice/*"}, process(0, "x", "/user.slice")));
    EXPECT_FALSE(captures({}, {"uid:1000"}, process(1000, "x")));
    EXPECT_TRUE(captures({}, {"uid:1000"}, process(1001, "x")));
    EXPECT_FALSE(captures({}, {"uid:1000-1999"}, process(1999, "x")));
    EXPECT_TRUE(captures({}, {"uid:1000-1999"}, process(2000, "x")));
    EXPECT_FALSE(captures({}, {"comm:?orker[0-9]"}, process(0, "worker7")));
}

TEST(ACapturePolicy, takes_in_only_what_include_names_and_exclude_goes_first) {
    EXPECT_TRUE(captures({"uid:7", "comm:train"}, {}, process(0, "train")));
    EXPECT_FALSE(captures({"uid:7", "comm:train"}, {}, process(0, "other")));
    EXPECT_FALSE(captures({"comm:train"}, {"uid:7"}, process(7, "train")));
}

TEST(ACapturePolicy, says_by_what_a_process_is_left_out) {
    const auto policy = CapturePolicy::parse({}, {"uid:1", "comm:a*"});
    ASSERT_TRUE(policy);
    EXPECT_EQ(policy->excluded_by(process(2, "abc")), "[capture] exclude comm:a*");
    EXPECT_EQ(CapturePolicy::parse({"uid:1"}, {})->excluded_by(process(2, "abc")),
              "[capture] include does not match it");
}

TEST(ACapturePolicy, refuses_what_is_no_pattern_and_says_why) {
    EXPECT_THAT(error_of("python*"), HasSubstr("must begin with unit:, cgroup:, comm: or uid:"));
    EXPECT_THAT(error_of(""), HasSubstr("must begin with"));
    EXPECT_THAT(error_of("user:bob"), HasSubstr("must begin with"));
    EXPECT_THAT(error_of("comm:"), HasSubstr("nothing to match"));
    EXPECT_THAT(error_of("uid:bob"), HasSubstr("needs a number"));
    EXPECT_THAT(error_of("uid:"), HasSubstr("needs a number"));
    EXPECT_THAT(error_of("uid:-1"), HasSubstr("needs a number"));
    EXPECT_THAT(error_of("uid:1-"), HasSubstr("needs a number"));
    EXPECT_THAT(error_of("uid:1-2x"), HasSubstr("needs a number"));
    EXPECT_THAT(error_of("uid:4294967296"), HasSubstr("needs a number"));
    EXPECT_THAT(error_of("uid:9-3"), HasSubstr("ends before it begins"));
    EXPECT_THAT(error_of("cgroup:system.slice"), HasSubstr("from the root"));
    EXPECT_THAT(error_of("comm:*********"), HasSubstr("more than 8"));
    EXPECT_THAT(error_of("comm:" + std::string(300, 'a')), HasSubstr("longer than 256"));
    EXPECT_THAT(error_of(std::string("comm:a\0b", 8)), HasSubstr("zero byte"));
    EXPECT_FALSE(CapturePolicy::parse(std::vector<std::string>(257, "uid:1"), {}));
}

TEST(TheCaptureSection, of_the_configuration_names_line_and_key_of_a_wrong_pattern) {
    Config config;
    ASSERT_TRUE(apply_config_text(config, "[capture]\nexclude = [\"uid:1000\", \"comm:x\"]\n", "file"));
    EXPECT_EQ(config.capture_exclude.size(), 2u);
    const auto wrong = apply_config_text(config, "[capture]\n\nexclude = [\"uid:bob\"]\n", "file");
    ASSERT_FALSE(wrong);
    EXPECT_THAT(wrong.error().message, HasSubstr("file:3: capture.exclude is wrong: \"uid:bob\" needs a number"));
    EXPECT_FALSE(apply_config_text(config, "[capture]\ninclude = \"uid:1\"\n", "file"));
    EXPECT_FALSE(apply_config_text(config, "[capture]\ninclude = [1]\n", "file"));
    EXPECT_TRUE(applies_on_reload("capture.include"));
    EXPECT_TRUE(applies_on_reload("capture.exclude"));
}

TEST(TheCaptureSection, names_the_mounts_of_fuse_that_are_trusted) {
    Config config;
    EXPECT_TRUE(config.trusted_fuse.empty());
    ASSERT_TRUE(apply_config_text(config, "[capture]\ntrusted_fuse = [\"/run/images/*\"]\n", "file"));
    EXPECT_THAT(config.trusted_fuse, testing::ElementsAre("/run/images/*"));
    for (const char* wrong : {"\"/run/images\"", "[\"images\"]", "[1]"})
        EXPECT_FALSE(apply_config_text(config, "[capture]\ntrusted_fuse = " + std::string(wrong) + "\n", "file"))
            << wrong;
    EXPECT_TRUE(applies_on_reload("capture.trusted_fuse"));
}

}  // namespace
