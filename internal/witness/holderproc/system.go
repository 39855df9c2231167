package holderproc

import "os"

// System is the source of the running process.
func System() Source {
	return Source{
		Read: func(file string) string {
			text, err := os.ReadFile(file)
			if err != nil {
				return "" // another system, or a sandbox
			}
			return string(text)
		},
		Link: func(file string) string {
			target, err := os.Readlink(file)
			if err != nil {
				return ""
			}
			return target
		},
		Getenv: os.Getenv,
	}
}
