#include "weft/train/evaluate.h"

#include <cmath>

#include "weft/data/loader.h"
#include "weft/train/feed.h"

namespace weft {

EvalResult evaluate(Session& session, const Dataset& dataset) {
  const PlanProgram& program = session.plan().program("eval");
  // The program takes the rows of this rank and gives the loss of all.
  const int64_t rows =
      session.plan().buffers[static_cast<size_t>(program.inputs.at("tokens"))].type.shape[0];
  const int64_t batch = rows * data_ways(session.plan());
  EvalResult result;
  double sum = 0;
  const int64_t count = num_eval_batches(dataset, batch);
  for (int64_t index = 0; index < count; ++index) {
    const GlobalBatch all = eval_batch(dataset, index, batch);
    feed_rows(session, "eval", all, first_row(session.plan(), 0, rows), rows, "");
    session.run("eval");
    sum += read_scalar(session, "eval", "loss");
    result.tokens += all.valid_labels;
  }
  if (result.tokens > 0) result.loss = sum / static_cast<double>(result.tokens);
  result.perplexity = std::exp(result.loss);
  return result;
}

}  // namespace weft
