package text

import (
	"strconv"
	"strings"
)

// Count is "1 lock", "2 locks" or "2 processes".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "s") {
		noun += "e"
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
