package locktxn

import (
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Refused tells whether err means that etcd did not and will not do what was asked: a bad request, too many of them, no
// permission, a lease that is gone. Every other error says nothing about the outcome: the write may have been done, or
// may be done later. A refusal speaks for its own sending only: an earlier one of the same transaction may still be on
// its way.
//
// Out of space is no refusal: etcd notices while it applies a transaction that the quota is exceeded, applies it all
// the same and answers with that error. Of 20 KB puts by 32 clients at the limit one in five was committed so.
func Refused(err error) bool {
	switch Code(err) {
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.NotFound:
		return true
	}
	return is(err, rpctypes.ErrTooManyRequests)
}

// Postponed tells whether etcd did not do what was asked, but may when it is asked again: it is overloaded, or the
// token that the user's password bought is not valid any more. Of the latter etcd's client errs once, and gets another
// one.
func Postponed(err error) bool {
	for _, again := range []error{
		rpctypes.ErrTooManyRequests, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision, rpctypes.ErrUserEmpty,
	} {
		if errors.Is(err, again) {
			return true
		}
	}
	return false
}

// NoSpace tells whether etcd refuses puts until somebody makes room and disarms its alarm. It may have done this last
// one.
func NoSpace(err error) bool { return is(err, rpctypes.ErrNoSpace) }

// LeaseGone tells whether the request named a lease that does not exist any more.
func LeaseGone(err error) bool { return is(err, rpctypes.ErrLeaseNotFound) }

// Code is the gRPC code of an error of etcd's client, which comes in two shapes.
func Code(err error) codes.Code {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code()
	}
	return status.Code(err)
}

// is compares by text, as the error may not have gone through etcd's client's translation.
func is(err, target error) bool {
	return err != nil && (errors.Is(err, target) || errors.Is(rpctypes.Error(err), target))
}
