package etcdconn

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Class is the kind of an etcd error, as a metric label.
type Class string

// The classes. Errors about the request itself (compacted, lease not found, ...) are Other.
const (
	Unreachable Class = "unreachable"
	Certificate Class = "certificate"
	Credentials Class = "credentials"
	Permission  Class = "permission denied"
	NoLeader    Class = "no leader"
	NoSpace     Class = "no space"
	Overloaded  Class = "overloaded"
	Corrupt     Class = "corrupt"
	TooLarge    Class = "too large"
	Timeout     Class = "timeout"
	Canceled    Class = "canceled"
	Other       Class = "other"
)

// Classify returns the class of an error of an etcd client, or "" for nil.
func Classify(err error) Class {
	class, _ := explain(err)
	return class
}

// Explain returns one sentence about what an error of an etcd client means. Unknown errors keep their own text.
func Explain(err error) string {
	_, sentence := explain(err)
	return sentence
}

func explain(err error) (Class, string) {
	if err == nil {
		return "", ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class, e.sentence
	}
	for _, a := range knownErrors() {
		for _, e := range a.errs {
			if errors.Is(err, e) || errors.Is(rpctypes.Error(err), e) {
				return a.class, a.sentence
			}
		}
	}
	s, isStatus := status.FromError(err)
	switch {
	case isStatus && (s.Code() == codes.Unavailable || s.Code() == codes.DeadlineExceeded):
		return explainConnection(s.Code(), s.Message())
	case isStatus && strings.Contains(s.Message(), "unexpected HTTP status code"):
		return Unreachable, "the server at the etcd endpoint is not etcd"
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout, timeout
	case errors.Is(err, context.Canceled), s.Code() == codes.Canceled:
		return Canceled, "the request to etcd was cancelled"
	}
	return Other, err.Error()
}

const timeout = "etcd did not answer in time"

type knownError struct {
	errs     []error
	class    Class
	sentence string
}

// knownErrors returns the errors that etcd itself answers with, with their classes and sentences.
func knownErrors() []knownError {
	return []knownError{
		{[]error{rpctypes.ErrPermissionDenied}, Permission,
			"etcd denies permission: the etcd user's role does not allow this on these keys"},
		{[]error{rpctypes.ErrAuthFailed}, Credentials, "etcd rejects the user and password"},
		{[]error{rpctypes.ErrUserEmpty}, Credentials,
			"etcd requires a login: give a user and password, or a client certificate"},
		{[]error{rpctypes.ErrUserNotFound}, Credentials, "etcd does not know the user"},
		{[]error{rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision}, Credentials,
			"etcd's users changed or the login expired: the next attempt logs in again"},
		{[]error{rpctypes.ErrNoLeader}, NoLeader, "etcd has no leader: a majority of its members is not connected"},
		{[]error{rpctypes.ErrLeaderChanged, rpctypes.ErrNotLeader, rpctypes.ErrTimeoutDueToLeaderFail}, NoLeader,
			"etcd's leader changed during the request"},
		{[]error{rpctypes.ErrNoSpace}, NoSpace,
			"etcd is out of space and takes no writes: compact it, defragment every member, then disarm its alarm"},
		{[]error{rpctypes.ErrTooManyRequests}, Overloaded, "etcd is overloaded"},
		{[]error{rpctypes.ErrCorrupt}, Corrupt,
			"etcd's members disagree about its content (corrupt cluster): an operator has to repair it"},
		{[]error{rpctypes.ErrRequestTooLarge, rpctypes.ErrTooManyOps}, TooLarge,
			"the request is larger than etcd allows"},
		{[]error{rpctypes.ErrTimeout, rpctypes.ErrTimeoutDueToConnectionLost, rpctypes.ErrTimeoutWaitAppliedIndex},
			Timeout, timeout},
		{[]error{rpctypes.ErrStopped, rpctypes.ErrUnhealthy}, Unreachable, "the etcd member is stopping or unhealthy"},
	}
}

// explainConnection explains the error of a call that found no connection, or lost it, by its text: gRPC offers nothing
// but text.
func explainConnection(code codes.Code, text string) (Class, string) {
	reason := connectionError(text)
	has := func(part string) bool { return strings.Contains(reason, part) }
	switch {
	case has(missingCertificate):
		return Certificate, missingCertificate
	case has(refusedCertificate):
		return Certificate, refusedCertificate + ": " + whyRefused(reason)
	case has("client certificate"), has("etcd CA "), has(expiredServer): // sentences of ours, two about lost files
		return Certificate, strings.TrimPrefix(reason, handshakeFailed)
	case has("x509: certificate signed by unknown authority"):
		return Certificate, "etcd's certificate is signed by an unknown authority: give the right CA " +
			"certificate"
	case has("x509: "):
		return Certificate, "etcd's certificate is not trusted: " +
			reason[strings.Index(reason, "x509: ")+len("x509: "):]
	case has("authentication handshake failed: EOF"), has("first record does not look like a TLS handshake"):
		return Unreachable, "the server at the etcd endpoint does not speak TLS: is it http:// there?"
	case has("server preface") && has("use of closed network connection"): // we closed it, at the dial timeout
		return Unreachable, "the server at the etcd endpoint accepts connections and does not answer: it hangs, or " +
			"is not etcd"
	case has("server preface"):
		return Unreachable, "the server at the etcd endpoint closed the connection before its first answer: is it " +
			"https:// there?"
	case has("transport: "):
		return Unreachable, "etcd is unreachable: " + strings.NewReplacer("transport: ", "", "Error while dialing: ",
			"").Replace(reason)
	case has("waiting for connections to become ready"):
		return Unreachable, "etcd is unreachable: nothing answers at its endpoints"
	case code == codes.DeadlineExceeded, has("keepalive ping failed"):
		return Timeout, timeout
	}
	return Unreachable, "the connection to etcd is lost: " + reason
}

// whyRefused extracts the reason of an [unconfirmedConn] from the text of an error. If the file says nothing, etcd's
// answer may: the clocks differ.
func whyRefused(text string) string {
	_, text, _ = strings.Cut(text, refusedCertificate+": ")
	why, answer, _ := strings.Cut(text, ": ")
	if why == unknownAuthority && strings.Contains(answer, "expired certificate") {
		return "it has expired by etcd's clock"
	}
	return why
}

// handshakeFailed is gRPC's prefix for handshake errors.
const handshakeFailed = "transport: authentication handshake failed: "

// connectionError extracts the reason from `latest balancer error: connection error: desc = "reason"`.
func connectionError(text string) string {
	if _, quoted, found := strings.Cut(text, "desc = "); found {
		if reason, err := strconv.Unquote(quoted); err == nil {
			return reason
		}
		return quoted
	}
	return text
}

// FaultMonitor checks every second why etcd cannot be used. It logs each class of reason once per outage, and returns
// the current one. The failing calls themselves do not learn the reason: they wait for a connection until they time
// out.
type FaultMonitor struct {
	Etcd   *clientv3.Client
	Prefix string // see [CheckAccess]
	// IsUsable reports whether etcd can be used, without a request to etcd. While it returns true, the monitor sends
	// none.
	IsUsable func() bool
	Log      zerolog.Logger

	interval time.Duration // replaces monitorInterval in tests

	mu     sync.Mutex
	class  Class
	cause  string
	logged map[Class]bool
}

const (
	monitorInterval = time.Second
	monitorTimeout  = 5 * time.Second
)

// Fault returns why etcd cannot be used: its class, and one sentence. Both are empty if it can.
func (t *FaultMonitor) Fault() (class, cause string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.class), t.cause
}

// Run checks every second until ctx ends.
func (t *FaultMonitor) Run(ctx context.Context) error {
	return every(ctx, cmp.Or(t.interval, monitorInterval), t.check)
}

// every calls check at once, and then regularly until ctx ends. It returns nil.
func every(ctx context.Context, interval time.Duration, check func(context.Context)) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		check(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (t *FaultMonitor) check(ctx context.Context) {
	if t.IsUsable() {
		t.clearFault()
		return
	}
	try, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	switch err := CheckAccess(try, t.Etcd, t.Prefix); {
	case ctx.Err() != nil:
	case err == nil:
		t.clearFault()
	default:
		t.setFault(err)
	}
}

func (t *FaultMonitor) setFault(err error) {
	class := Classify(err)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.class, t.cause = class, err.Error()
	if t.logged[class] {
		return
	}
	if t.logged == nil {
		t.logged = map[Class]bool{}
	}
	t.logged[class] = true
	t.Log.Error().Str("class", string(class)).Msg("etcd cannot be used: " + t.cause)
}

func (t *FaultMonitor) clearFault() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cause != "" {
		t.Log.Info().Msg("etcd can be used again")
	}
	t.class = ""
	t.cause = ""
	t.logged = nil
}
