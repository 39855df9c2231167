package cli

// What is written to terminals is worth a look of its own.
var (
	Visible      = visible
	ParseVisible = parseVisible
	Prose        = prose
	Columns      = columns
	Clip         = clip
	Age          = age
	Relative     = relative
	Lines        = lines
)

// Match tells whether a pattern matches a name.
func Match(pattern, name string) bool {
	g, err := newGlobs([]string{pattern})
	return err == nil && g.match(name)
}
