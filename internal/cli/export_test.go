package cli

// What is written to terminals is worth a look of its own.
var (
	Columns  = columns
	Clip     = clip
	Age      = age
	Relative = relative
	Lines    = lines
)
