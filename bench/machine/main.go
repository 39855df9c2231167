package machine

import (
	"context"
	"fmt"
	"os"
	"os/signal"
)

// Main runs a benchmark until it ends or is interrupted, after some lines about the machine, and exits if it fails. The
// directory of its data is a temporary one if it is empty.
func Main(name string, dir *string, run func(context.Context) error) {
	if err := begin(name, dir, run); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func begin(name string, dir *string, run func(context.Context) error) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *dir == "" {
		if *dir, err = os.MkdirTemp("", "bench-"+name+"-"); err != nil {
			return err
		}
		defer os.RemoveAll(*dir)
	}
	about, err := Describe(*dir)
	if err != nil {
		return err
	}
	fmt.Println(about)
	return run(ctx)
}
