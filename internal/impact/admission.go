// SPDX-License-Identifier: Apache-2.0

package impact

func judgeAdmission(*Case) []Consequence { return nil }
