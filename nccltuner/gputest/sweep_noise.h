/* SPDX-License-Identifier: Apache-2.0
 *
 * What single calls look like: the spread, the tail and the memory of their noise, as one JSON line a series.
 */
#ifndef DYN_SWEEP_NOISE_H
#define DYN_SWEEP_NOISE_H

#include <math.h>
#include <stdio.h>

#include <algorithm>
#include <string>
#include <vector>

static double medianOf(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  size_t n = v.size();
  return n == 0 ? 0 : n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static std::string noiseFacts(const std::vector<double> &us) {
  const double median = medianOf(us);
  std::vector<double> residual, distance;
  double mean = 0, over15 = 0, over2 = 0, worst = 0;
  for (double x : us) {
    residual.push_back(log(x / median));
    distance.push_back(fabs(residual.back()));
    mean += residual.back() / us.size();
    over15 += (x > 1.5 * median) / (double)us.size();
    over2 += (x > 2 * median) / (double)us.size();
    worst = std::max(worst, x / median);
  }
  // The slope that the tail does not own: residuals beyond 3 robust deviations count as 3, as the detector counts them.
  const double robust = 1.4826 * medianOf(distance);
  double variance = 0, lag0 = 0, lag1 = 0, previous = 0;
  for (size_t i = 0; i < residual.size(); i++) {
    variance += (residual[i] - mean) * (residual[i] - mean) / residual.size();
    const double cut = std::max(-3 * robust, std::min(3 * robust, residual[i]));
    lag0 += cut * cut;
    if (i > 0) lag1 += cut * previous;
    previous = cut;
  }
  char line[512];
  snprintf(line, sizeof line,
           "\"median_us\": %.2f, \"log_sd_mad\": %.4f, \"log_sd\": %.4f, \"share_over_1.5x\": %.4f, \"share_over_2x\": %.4f, "
           "\"worst_over_median\": %.2f, \"lag1_autocorrelation\": %.3f",
           median, robust, sqrt(variance), over15, over2, worst, lag0 > 0 ? lag1 / lag0 : 0.0);
  return line;
}

#endif
