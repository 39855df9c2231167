package fencing_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/clustermutex/unlocker/pkg/fencing"
)

// A server whose books only the newest holder of a lock may write, and two holders; 33 and 34 stand for the tokens of
// their locks.
func Example() {
	books := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println("written by", fencing.FromContext(r.Context()))
	})
	fence := fencing.Fence{Store: fencing.NewMemory(0), Resource: fencing.FixedResource("books")}
	server := httptest.NewServer(fence.Handler(books))
	defer server.Close()

	client := &http.Client{Transport: &fencing.Transport{}}
	write := func(token int64) {
		ctx := fencing.NewContext(context.Background(), token) // lock.Context(), lock.Token()
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, server.URL, nil)
		if err != nil {
			log.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			log.Fatal(err)
		}
		defer answer.Body.Close()
		fmt.Println(answer.Status)
	}
	write(33)
	write(34)
	write(33) // it was paused, and does not know yet
	// Output:
	// written by 33
	// 200 OK
	// written by 34
	// 200 OK
	// 412 Precondition Failed
}
