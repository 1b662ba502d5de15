// Asks a control plane how many replicas of half a core and 1 GiB fit in each cluster.
//
//	go run . 127.0.0.1:7443 certs/ca.pem admin.token
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	federationv1 "example.com/estimate/gen/federation/v1"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatalf("usage: %s ENDPOINT CA_FILE TOKEN_FILE", os.Args[0])
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		log.Fatal(err)
	}
}

func run(endpoint, ca, tokenFile string) error {
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		return err
	}
	tls, err := credentials.NewClientTLSFromFile(ca, "")
	if err != nil {
		return err
	}
	// From grpc-go 1.63 on: grpc.NewClient.
	connection, err := grpc.Dial(endpoint, grpc.WithTransportCredentials(tls))
	if err != nil {
		return err
	}
	defer connection.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	bearer := "Bearer " + strings.TrimSpace(string(token))
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", bearer)
	shape := &federationv1.ReplicaRequirements{
		ResourceRequest: map[string]string{"cpu": "500m", "memory": "1Gi"},
	}
	answer, err := federationv1.NewEstimatesClient(connection).EstimateReplicas(ctx,
		&federationv1.EstimateReplicasRequest{
			Shapes:              []*federationv1.ReplicaRequirements{shape},
			IncludeClusterNames: true,
		})
	if err != nil {
		return err
	}
	unknown := map[int32]bool{}
	for _, position := range answer.Unknown {
		unknown[position] = true
	}
	for position, cluster := range answer.Clusters {
		if unknown[int32(position)] {
			fmt.Println(cluster, "unknown")
		} else {
			fmt.Println(cluster, answer.Replicas[position])
		}
	}
	return nil
}
