package recipes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/pkg/inspect"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// Terraform is a server for Terraform's http backend, of which several replicas may run. The state of /prod is the key
// /terraform/prod in etcd. Its lock, terraform/prod, is a reservation: it belongs to no replica.
type Terraform struct {
	Etcd    *clientv3.Client
	Locks   *mutex.Client
	Inspect *inspect.Inspector
	Longest time.Duration // after which the lock of a run that does not unlock is removed
}

// lockInfo is what Terraform says about a run. ID is its own, not the UUID of our hold.
type lockInfo struct {
	ID, Operation, Who, Version string
	Created                     time.Time
	Info                        string
}

// ServeHTTP answers 423 with the lock info of the run that has the lock, if another one wants it.
func (t Terraform) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1_000_000)) // etcd refuses requests of more than 1.5 MiB
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	err = t.serve(w, r, string(body))
	if held, ok := errors.AsType[*mutex.HeldError](err); ok {
		w.WriteHeader(http.StatusLocked)
		_ = json.NewEncoder(w).Encode(infoOf(&held.Holder))
	} else if errors.Is(err, mutex.ErrNotHeld) {
		http.Error(w, err.Error(), http.StatusConflict)
	} else if err != nil { // Terraform tries twice more
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (t Terraform) serve(w http.ResponseWriter, r *http.Request, body string) error {
	key := "/terraform" + r.URL.Path
	var info lockInfo
	_ = json.Unmarshal([]byte(body), &info) // a state is none: then the ID is in the query
	id := cmp.Or(r.URL.Query().Get("ID"), info.ID)
	switch r.Method {
	case http.MethodGet:
		state, err := t.Etcd.Get(r.Context(), key)
		if err == nil && len(state.Kvs) > 0 {
			_, err = w.Write(state.Kvs[0].Value) //nolint:gosec // for Terraform, not for a browser
		}
		return err
	case "LOCK":
		_, err := t.Locks.TryReserve(r.Context(), key[1:], info.Operation+" by "+info.Who, t.Longest,
			mutex.Attribute("terraform", body))
		if held, ok := errors.AsType[*mutex.HeldError](err); ok && infoOf(&held.Holder).ID == id {
			return nil // the answer to the first try was lost
		}
		return err
	}
	l, err := t.adopt(r.Context(), key[1:], id)
	if r.Method == "UNLOCK" && errors.Is(err, mutex.ErrNotHeld) {
		return nil // an earlier try unlocked it, or an operator
	} else if err != nil {
		return err
	}
	defer l.Detach()
	switch r.Method {
	case "UNLOCK":
		return l.Unlock()
	case http.MethodPost:
		return t.write(r.Context(), clientv3.OpPut(key, body), l)
	}
	return errors.ErrUnsupported
}

// adopt returns a handle of the hold of the run with this ID, whichever replica took it.
func (t Terraform) adopt(ctx context.Context, name, id string) (*mutex.Lock, error) {
	lock, err := t.Inspect.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	switch holder := lock.Holder(); {
	case holder == nil:
		return nil, mutex.ErrNotHeld
	case infoOf(holder).ID != id:
		return nil, &mutex.HeldError{Name: name, Holder: *holder}
	}
	return t.Locks.Adopt(ctx, name, lock.Holder().UUID)
}

// write writes the state, unless the hold is over.
func (t Terraform) write(ctx context.Context, state clientv3.Op, l *mutex.Lock) error {
	written, err := t.Etcd.Txn(ctx).If(l.Guard()).Then(state).Commit()
	if err == nil && !written.Succeeded {
		return mutex.ErrNotHeld
	}
	return err
}

// infoOf returns what Terraform said about the run that holds the lock, or else what the record says about the holder.
func infoOf(r *metadata.FullRecord) (info lockInfo) {
	text, _ := r.Attributes["terraform"].(string)
	if json.Unmarshal([]byte(text), &info) != nil {
		return lockInfo{ID: r.UUID, Who: r.Owner, Created: r.LockedAt, Info: r.Purpose}
	}
	return info
}
