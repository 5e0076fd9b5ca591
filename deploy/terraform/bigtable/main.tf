# A Bigtable instance for Widerow, replicated over two zones, with the application profiles that two of its settings name:
# `bigtable.app_profile` and `bigtable.read_app_profile`.
#
#   terraform init && terraform apply -var project=my-project
#
# The outputs are those settings. The tables are Widerow's to make: `widerow schema apply --store bigtable://PROJECT/INSTANCE/PREFIX`.

terraform {
  required_version = ">= 1.5"
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 5.0"
    }
  }
}

variable "project" {
  type        = string
  description = "The project the instance belongs to."
}

variable "instance" {
  type    = string
  default = "widerow"
}

variable "zones" {
  type        = list(string)
  default     = ["europe-west1-b", "europe-west4-a"]
  description = "One cluster in each. The first is the one that is written to."

  validation {
    condition     = length(var.zones) >= 2
    error_message = "Replication needs two zones or more."
  }
}

variable "storage" {
  type        = string
  default     = "SSD"
  description = "SSD, or HDD for archives: latest values and the catalog are read at random, which HDD is bad at."
}

variable "min_nodes" {
  type    = number
  default = 1
}

variable "max_nodes" {
  type    = number
  default = 10
}

provider "google" {
  project = var.project
}

resource "google_bigtable_instance" "widerow" {
  name                = var.instance
  display_name        = "Widerow"
  deletion_protection = true

  dynamic "cluster" {
    for_each = var.zones
    content {
      cluster_id   = "${var.instance}-${cluster.key}"
      zone         = cluster.value
      storage_type = var.storage
      autoscaling_config {
        min_nodes      = var.min_nodes
        max_nodes      = var.max_nodes
        cpu_target     = 60
        storage_target = var.storage == "HDD" ? 8192 : 2560
      }
    }
  }
}

# For everything but what the next one takes over: conditional writes are only allowed where one cluster decides.
resource "google_bigtable_app_profile" "app_profile" {
  instance       = google_bigtable_instance.widerow.name
  app_profile_id = "widerow"
  description    = "Widerow: writes, the catalog, and reads that must not lag"

  single_cluster_routing {
    cluster_id                 = "${var.instance}-0"
    allow_transactional_writes = true
  }

  ignore_warnings = true
}

# For reading reports: the nearest cluster answers, and another one if that fails. It may lag by some seconds.
resource "google_bigtable_app_profile" "read_app_profile" {
  instance                      = google_bigtable_instance.widerow.name
  app_profile_id                = "widerow-read"
  description                   = "Widerow: reading reports"
  multi_cluster_routing_use_any = true
  ignore_warnings               = true
}

output "store_url" {
  value       = "bigtable://${var.project}/${var.instance}/widerow"
  description = "store.url"
}

output "app_profile" {
  value       = google_bigtable_app_profile.app_profile.app_profile_id
  description = "bigtable.app_profile"
}

output "read_app_profile" {
  value       = google_bigtable_app_profile.read_app_profile.app_profile_id
  description = "bigtable.read_app_profile"
}
