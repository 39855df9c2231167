//go:build conformance

package conformance

import "google.golang.org/grpc"

// fault is a rule that a Go driver breaks on purpose: the suite has to refuse it. A nil fault breaks none.
type fault struct {
	name  string
	about string
	cases []string                            // one of these cases has to refuse it
	said  func(map[string]any) map[string]any // changes an answer or event; nil: none
	dial  []grpc.DialOption                   // change what is sent
}

// faults are all of them.
func faults() []*fault { return nil }

func faultNamed(name string) *fault {
	for _, f := range faults() {
		if f.name == name {
			return f
		}
	}
	return nil
}

func (f *fault) say(members map[string]any) map[string]any {
	if f == nil || f.said == nil {
		return members
	}
	return f.said(members)
}

func (f *fault) dialOptions() []grpc.DialOption {
	if f == nil {
		return nil
	}
	return f.dial
}
