// Tests that reads and writes transfer the right bytes, with std::fstream as the reference.
// SPDX-License-Identifier: Apache-2.0
#include <fstream>
#include <vector>

#include "support.h"

namespace async_io_test {
namespace {

using TransferTest = EachBackend;

INSTANTIATE_TEST_SUITE_P(All, TransferTest, all_backends(), backend_name);

// A random transfer: whole pages, arbitrary values, or an offset and an address with the same
// alignment within a page.
struct Place {
  uint64_t offset;
  size_t lead;  // offset of the memory's start within its page
  uint64_t bytes;

  static Place random(std::mt19937& random, uint64_t most) {
    const uint64_t page = page_size();
    Place place;
    place.bytes = random() % most;
    place.offset = random() % most;
    place.lead = random() % page;
    const uint32_t kind = random() % 4;
    if (kind == 0) place.bytes = place.bytes / page * page;
    if (kind <= 1) place.offset = place.offset / page * page;
    if (kind <= 2) place.lead = place.offset % page;
    return place;
  }
};

Options random_options(std::mt19937& random, Backend backend) {
  Options options = options_of(backend, 1 + random() % 3);
  const uint64_t blocks[] = {1, 4096, 12288, 65536, 1 << 20};
  options.block_size = blocks[random() % 5];
  const uint32_t depths[] = {1, 2, 7, 32};
  options.queue_depth = depths[random() % 4];
  options.single_submit = random() % 2 == 0;
  options.overlap_events = random() % 2 == 0;
  return options;
}

TEST_P(TransferTest, ReadsWhatTheFileHolds) {
  constexpr uint64_t kMax = 700'000;
  const std::string file = random_bytes(2 * kMax, 1);
  folder.write("file", file);
  std::mt19937 random(2);
  for (int round = 0; round < 40; ++round) {
    Engine engine(random_options(random, GetParam()));
    for (int i = 0; i < 4; ++i) {
      const Place place = Place::random(random, kMax);
      SCOPED_TRACE(testing::Message()
                   << place.bytes << " bytes at " << place.offset << " to page + " << place.lead);
      // One extra page on either side, which must stay unchanged.
      Pages pages(place.bytes + 3 * page_size());
      char* const memory = static_cast<char*>(pages.data()) + page_size() + place.lead;
      memset(pages.data(), 'G', pages.bytes());
      std::string expected(pages.bytes(), 'G');
      expected.replace(page_size() + place.lead, place.bytes, file, place.offset, place.bytes);
      engine.run(read_of(path(), place.offset, memory, place.bytes));
      ASSERT_TRUE(memcmp(pages.data(), expected.data(), expected.size()) == 0);
    }
  }
}

TEST_P(TransferTest, WritesWhatTheMemoryHolds) {
  constexpr uint64_t kMax = 500'000;
  std::mt19937 random(3);
  for (int round = 0; round < 25; ++round) {
    const std::string ours = path(("ours" + std::to_string(round)).c_str());
    const std::string oracles = path(("oracles" + std::to_string(round)).c_str());
    std::ofstream(oracles, std::ios::binary).close();
    Engine engine(random_options(random, GetParam()));
    for (int i = 0; i < 4; ++i) {
      const Place place = Place::random(random, kMax);
      SCOPED_TRACE(testing::Message()
                   << place.bytes << " bytes from page + " << place.lead << " to " << place.offset);
      const std::string bytes = random_bytes(place.bytes, random());
      Pages pages(place.bytes + page_size());
      char* const memory = static_cast<char*>(pages.data()) + place.lead;
      memcpy(memory, bytes.data(), bytes.size());
      {
        std::fstream oracle(oracles, std::ios::binary | std::ios::in | std::ios::out);
        oracle.seekp(static_cast<std::streamoff>(place.offset));
        oracle.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
      }
      engine.run(write_of(ours, place.offset, memory, place.bytes));
      ASSERT_TRUE(contents(ours) == contents(oracles));
    }
  }
}

TEST_P(TransferTest, WholePagesGoPastThePageCache) {
  if (!takes_direct(folder)) GTEST_SKIP() << "this file system takes no O_DIRECT";
  const uint64_t page = page_size();
  Pages pages(64 * page);
  char* const memory = static_cast<char*>(pages.data());
  Engine engine(options_of(GetParam(), 2));
  const auto went = [&](const Request& request) {
    const Totals before = engine.totals();
    engine.run(request);
    const Totals after = engine.totals();
    return std::pair(after.direct - before.direct, after.buffered - before.buffered);
  };
  using Ways = std::pair<uint64_t, uint64_t>;
  EXPECT_EQ(went(write_of(path(), 0, memory, 64 * page)), Ways(64 * page, 0));
  EXPECT_EQ(went(read_of(path(), 0, memory, 64 * page)), Ways(64 * page, 0));
  EXPECT_EQ(went(read_of(path(), page, memory, 2 * page + 5)), Ways(2 * page, 5));
  EXPECT_EQ(went(write_of(path(), 10, memory + 10, 3 * page)), Ways(2 * page, page));
  EXPECT_EQ(went(write_of(path(), 0, memory + 64, 3 * page)), Ways(0, 3 * page));
  EXPECT_EQ(went(read_of(path(), 7, memory, 3 * page)), Ways(0, 3 * page));
  EXPECT_EQ(went(read_of(path(), 1, memory + 1, page)), Ways(0, page));
}

TEST_P(TransferTest, FilesInMemoryWorkToo) {
  if (access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "there is no /dev/shm to write to";
  const std::string file = "/dev/shm/opdock-async-io-" + std::to_string(getpid());
  const std::string bytes = random_bytes(300'000, 4);
  Pages pages(bytes.size());
  memcpy(pages.data(), bytes.data(), bytes.size());
  Engine engine(options_of(GetParam(), 2));
  engine.run(write_of(file, 4096, pages.data(), bytes.size()));
  const std::string found = contents(file);
  memset(pages.data(), 0, pages.bytes());
  engine.run(read_of(file, 4096, pages.data(), bytes.size()));
  unlink(file.c_str());
  EXPECT_TRUE(found == std::string(4096, '\0') + bytes);
  EXPECT_TRUE(memcmp(pages.data(), bytes.data(), bytes.size()) == 0);
}

TEST_P(TransferTest, AWriteGivesTheFileItsSize) {
  Engine engine(options_of(GetParam()));
  folder.write("file", std::string(10'000, 'o'));
  std::string bytes(5'000, 'n');
  Request write = write_of(path(), 1'000, bytes.data(), bytes.size());
  engine.run(write);
  const std::string expected = std::string(1'000, 'o') + bytes + std::string(4'000, 'o');
  EXPECT_TRUE(contents(path()) == expected);
  write.file_size = 6'000;
  engine.run(write);
  EXPECT_TRUE(contents(path()) == expected.substr(0, 6'000));
  write.file_size = 8'000;
  engine.run(write);
  EXPECT_TRUE(contents(path()) == expected.substr(0, 6'000) + std::string(2'000, '\0'));
}

TEST_P(TransferTest, NoBytesAreNoError) {
  Engine engine(options_of(GetParam()));
  engine.run(write_of(path(), 5, nullptr, 0));
  EXPECT_EQ(contents(path()), "");
  EXPECT_TRUE(std::filesystem::exists(path()));
  engine.run(read_of(path(), 0, nullptr, 0));
}

TEST_P(TransferTest, OffsetsBeyondFourGigabytes) {
  constexpr uint64_t kOffset = (uint64_t{5} << 30) + 4096;
  Pages pages(3 * 4096);
  const std::string bytes = random_bytes(pages.bytes(), 5);
  memcpy(pages.data(), bytes.data(), bytes.size());
  Engine engine(options_of(GetParam()));
  engine.run(write_of(path(), kOffset, pages.data(), pages.bytes()));
  std::string found(bytes.size(), '\0');
  std::ifstream oracle(path(), std::ios::binary);
  oracle.seekg(static_cast<std::streamoff>(kOffset));
  oracle.read(found.data(), static_cast<std::streamsize>(found.size()));
  EXPECT_TRUE(found == bytes);
  memset(pages.data(), 0, pages.bytes());
  engine.run(read_of(path(), kOffset, pages.data(), pages.bytes()));
  EXPECT_TRUE(memcmp(pages.data(), bytes.data(), bytes.size()) == 0);
}

TEST_P(TransferTest, DescriptorsStayAsTheyAre) {
  const std::string bytes = random_bytes(3 * page_size(), 6);
  folder.write("file", bytes);
  const int fd = open(path().c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  unlink(path().c_str());  // a file without a name can still be read and written
  const int flags = fcntl(fd, F_GETFL);
  lseek(fd, 17, SEEK_SET);
  Engine engine(options_of(GetParam()));
  Pages pages(bytes.size());
  Request request = read_of("", 0, pages.data(), pages.bytes());
  request.fd = fd;
  engine.run(request);
  EXPECT_TRUE(memcmp(pages.data(), bytes.data(), bytes.size()) == 0);
  EXPECT_EQ(fcntl(fd, F_GETFL), flags);
  EXPECT_EQ(lseek(fd, 0, SEEK_CUR), 17);
  memset(pages.data(), 'w', pages.bytes());
  request.is_write = true;
  engine.run(request);
  std::string found(bytes.size(), '\0');
  EXPECT_EQ(pread(fd, found.data(), found.size(), 0), static_cast<ssize_t>(found.size()));
  EXPECT_TRUE(found == std::string(bytes.size(), 'w'));
  // The descriptor may be closed at once, because the request has a duplicate.
  request.is_write = false;
  const uint64_t ticket = engine.submit(request);
  close(fd);
  engine.wait(ticket);
}

}  // namespace
}  // namespace async_io_test
