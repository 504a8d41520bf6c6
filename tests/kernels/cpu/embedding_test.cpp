// The look-up and its gradient without torch.
#include "kernels/cpu/embedding.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cpu/each_target.h"

namespace {

TEST(EmbeddingOnCpu, StaysInsideItsRows) {
  const std::vector<int64_t> ids = {4, 0, 4, 2};
  for (const int64_t dim : {0, 1, 3, 8, 19}) {
    const std::vector<float> table = test::noise(5 * dim, 1);
    const kernels::cpu::Embedding embedding{ids.data(), 4, 5, dim, 2};
    test::on_each_target([&] {
      std::vector<float> out(static_cast<size_t>(8 * dim)), dtable(table.size());
      kernels::cpu::embed(embedding, table.data(), out.data());
      kernels::cpu::embed_backward(embedding, out.data(), dtable.data());
      for (size_t i = 0; i < table.size(); ++i) {  // row 4 twice, each time in two copies
        const auto id = static_cast<int64_t>(i) / dim;
        EXPECT_EQ(dtable[i], id == 4 ? 4 * table[i] : id == 0 || id == 2 ? 2 * table[i] : 0.0f);
      }
    });
  }
}

}  // namespace
