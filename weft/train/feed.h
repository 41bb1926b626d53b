// Writes the inputs of the programs: token arrays of one micro-batch and the scalars of a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/data/loader.h"
#include "weft/runtime/session.h"

namespace weft {

/// Rows [first, first + batch) of `global` become tokens, labels, positions (and segments,
/// lengths, samples where the program has them); `suffix` is ".<micro>" in program "train", "" in
/// "eval".
void feed_rows(Session& session, std::string_view program, const GlobalBatch& global, int64_t first,
               int64_t batch, const std::string& suffix);

/// Micro-batch `micro` of a global batch has `rows` sequences of each data coordinate, in the order
/// of the coordinates: the first one of the rank of `plan`.
int64_t first_row(const Plan& plan, int64_t micro, int64_t rows);
/// Ranks that share a micro-batch: the sizes of axes data and expert, which lies inside data.
int64_t data_ways(const Plan& plan);

/// Writes a floating input of any size in the input's own dtype.
void feed_scalars(Session& session, std::string_view program, std::string_view input,
                  const std::vector<double>& values);

/// Reads a floating output.
std::vector<double> read_values(Session& session, std::string_view program,
                                std::string_view output);
/// Reads a one-element output as double.
double read_scalar(Session& session, std::string_view program, std::string_view output);

}  // namespace weft
