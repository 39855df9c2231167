package lockmetrics

// Series selects the locks that get series of their own.
type Series string

// The choices.
const (
	SeriesAlerting Series = "alerting" // those that are not on time
	SeriesAll      Series = "all"
	SeriesNone     Series = "none"
)

// wanted returns how many locks, the most urgent first, get series of their own.
func (s Series) wanted(all, urgent int) int {
	switch s {
	case SeriesAll:
		return all
	case SeriesAlerting:
		return urgent
	}
	return 0
}

// names reports whether any lock gets series of its own.
func (s Series) names() bool { return s == SeriesAll || s == SeriesAlerting }
