package sweep

import (
	"os"
	"path/filepath"
	"regexp"

	"dynamiccl/nccltuner"
)

// noGIN is what a rank says where NCCL's GIN did not come to be (kernels/host/gin.c).
var noGIN = regexp.MustCompile(`(?m)^dynamiccl: (rank \d+ of \d+: no GIN .*)$`)

// ginNote says what came of NCCL's GIN, and where it failed why, in the words of the first rank that knows; logs is the folder of
// what the ranks say. "": no rank took part in making it.
func ginNote(ranks []nccltuner.RankView, logs string) string {
	text := nccltuner.GINText(ranks)
	if text == "" {
		return ""
	}
	files, err := filepath.Glob(filepath.Join(logs, "rank*.log"))
	if err != nil {
		return text
	}
	for _, file := range files {
		said, err := os.ReadFile(file)
		if why := noGIN.FindSubmatch(said); err == nil && why != nil {
			return text + ": " + string(why[1])
		}
	}
	return text
}
