package config

import "strings"

// nearestKey is the key that a mistyped one most probably meant.
func nearestKey(wrong string) string {
	folded := fold(wrong)
	best, bestDistance := "", -1
	for _, f := range fields {
		if d := distance(folded, f.key); bestDistance < 0 || d < bestDistance {
			best, bestDistance = f.key, d
		}
	}
	return best
}

// meant asks for the key that a mistyped one most probably meant, if one is near.
func meant(wrong string) string {
	if key := nearestKey(wrong); distance(fold(wrong), key) <= len(wrong)/2 {
		return "did you mean \"" + key + "\"? "
	}
	return ""
}

func fold(key string) string {
	return strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(key))
}

// nearestEnv is the variable that a mistyped one most probably meant, of ranks' as of the daemon's.
func nearestEnv(wrong string) string {
	f, _ := fieldOf(nearestKey(strings.TrimPrefix(wrong, EnvPrefix)))
	best := f.env()
	for _, other := range otherEnv {
		if distance(wrong, other) < distance(wrong, best) {
			best = other
		}
	}
	return best
}

// distance is Levenshtein's edit distance. Long input is cut: it cannot be near to any key.
func distance(a, b string) int {
	if len(a) > 64 {
		a = a[:64]
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost = 1 + min(diagonal, row[j], row[j-1])
			}
			diagonal, row[j] = row[j], cost
		}
	}
	return row[len(b)]
}
