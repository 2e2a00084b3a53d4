// Parts of the daemon that native stacks stand on.
#include <gtest/gtest.h>

#include "daemon/ingerod/config.h"
#include "daemon/ingerod/discovery/proc_fs.h"

namespace ingero {
namespace {

TEST(MapsLine, TellsTheOffsetAndWhetherTheFileIsDeleted) {
    const auto mapping = parse_maps_line("7f0a1000-7f0a2000 r-xp 0001f000 fd:01 1234 /tmp/lib.so (deleted)");
    ASSERT_TRUE(mapping);
    EXPECT_EQ(mapping->offset, 0x1f000U);
    EXPECT_TRUE(mapping->deleted);
    EXPECT_EQ(mapping->path, "/tmp/lib.so");
    EXPECT_FALSE(parse_maps_line("7f0a1000-7f0a2000 r-xp 0001f000 fd:01 1234 /tmp/lib.so")->deleted);
}

TEST(CaptureStacks, IsNativeOrOff) {
    Config config;
    EXPECT_TRUE(config.native_stacks);
    ASSERT_TRUE(apply_config_text(config, "[capture]\nstacks = \"off\"\n", "test"));
    EXPECT_FALSE(config.native_stacks);
    EXPECT_TRUE(applies_on_reload("capture.stacks"));
    EXPECT_EQ(changed_keys(Config{}, config), std::vector<std::string>{"capture.stacks"});
    const auto wrong = apply_config_text(config, "[capture]\nstacks = true\n", "test");
    ASSERT_FALSE(wrong);
    EXPECT_EQ(wrong.error().message, "test:2: capture.stacks must be \"native\" or \"off\"");
}

}  // namespace
}  // namespace ingero
